#include "backends/ssh/link.h"

#include "backends/ssh/turned_away.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/files.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/random.h"
#include "backends/support/os/spawn.h"
#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr std::size_t k_id_bytes = 16;
constexpr std::size_t k_longest_line = 4096;   ///< That a host may say.
constexpr std::size_t k_most_facts = 1U << 18; ///< Ports, mostly.
constexpr int k_hex = 16;
constexpr int k_roomy = 1 << 20; ///< A pipe that takes a script at once.

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  const auto at = text.rfind('\n');
  return printable(at == std::string_view::npos ? text : text.substr(at + 1));
}

std::string question_text(const HostQuestion& question, const std::string& id) {
  auto text = fmt::format("number={}\ngpus={}\nslots={}\nwanted={}\nlater={}\n", question.number,
                          question.gpus, question.slots, question.wanted, question.later ? 1 : 0);
  for (const auto& [name, value] :
       {std::pair("id", &id), std::pair("run", &question.run),
        std::pair("folder", &question.folder), std::pair("program", &question.program),
        std::pair("path", &question.path), std::pair("interface", &question.interface),
        std::pair("parcel", &question.parcel), std::pair("parts", &question.parts),
        std::pair("cargo", &question.cargo), std::pair("data", &question.data)}) {
    text += fmt::format("{}={}\n", name, quote_sh(*value));
  }
  for (const auto* part : {"ssh/facts.sh", "ssh/sums.sh", "ssh/host.sh"}) {
    text += builtin_template(part).text;
  }
  return text;
}

} // namespace

std::vector<std::string> ssh_command(const std::string& host, const std::string& log,
                                     const std::string& command) {
  std::vector<std::string> words{"ssh", "-T"};
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=8", "ServerAliveInterval=1", "ServerAliveCountMax=6",
        "LogLevel=INFO", "RemoteCommand=none", "ForwardX11=no", "ForwardAgent=no",
        "ClearAllForwardings=yes", "ControlMaster=no", "ControlPath=none"}) {
    words.emplace_back("-o");
    words.emplace_back(option);
  }
  if (!log.empty()) {
    words.emplace_back("-E");
    words.push_back(log);
  }
  words.insert(words.end(), {"--", host, command});
  return words;
}

std::string explain_loss(const std::string& host, std::string_view said) {
  const auto says = [&](std::string_view words) { return said.find(words) != said.npos; };
  if (says("IDENTIFICATION HAS CHANGED")) {
    return fmt::format("its host key has changed: somebody may be listening in; if you know that "
                       "it was made anew: ssh-keygen -R {}",
                       host);
  }
  if (says("Host key verification failed")) {
    return fmt::format("its host key is not known here: run ssh {} once and compare it", host);
  }
  auto line = last_line(said);
  if (says("Permission denied")) {
    return line + ": it takes none of your keys (ssh-copy-id, ssh-add)";
  }
  return line;
}

Link::Link(std::string host, const HostQuestion& question)
    : host_(std::move(host)), id_(random_hex(k_id_bytes)), script_(question_text(question, id_)) {
  open();
}

void Link::open() {
  asked_ = Clock::now();
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  auto log = make_pipe();
  // A dd that does not know fullblock says so before it reads; byte by byte takes ten times as
  // long. Of words that every login shell leaves alone in quotes.
  const auto load = fmt::format("script=$(dd bs={0} count=1 iflag=fullblock 2>/dev/null); "
                                "[ -n \"$script\" ] || script=$(dd bs=1 count={0} 2>/dev/null); "
                                "eval \"$script\"",
                                script_.size());
  pid_ = spawn(
      {.argv = ssh_command(host_, fmt::format("/proc/{}/fd/{}", getpid(), log.write_end.get()),
                           "exec sh -c " + quote_sh(load)),
       .in = in.read_end.get(),
       .out = out.write_end.get(),
       .err = err.write_end.get(),
       .leads_group = true});
  in_ = std::move(in.write_end);
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
  log_ = std::move(log.read_end);
  log_end_ = std::move(log.write_end);
  fcntl(in_.get(), F_SETPIPE_SZ, k_roomy);
  for (const auto* fd : {&in_, &out_, &err_, &log_}) {
    make_non_blocking(*fd);
  }
  send(script_);
}

Link::~Link() { end_process(); }

void Link::end_process() {
  if (pid_ != 0) {
    kill(-pid_, SIGKILL); // A ProxyCommand is of its group.
    wait_for_child(std::exchange(pid_, 0));
  }
}

bool Link::tries_again() {
  if (!turned_away_ || tries_ == k_most_tries) {
    return false;
  }
  ++tries_;
  asked_ = Clock::now();
  opens_ = asked_ + pause_before(tries_);
  end_process();
  for (auto* fd : {&in_, &out_, &err_, &log_}) {
    fd->reset();
  }
  turned_away_ = greeted_ = false;
  unsent_.clear();
  line_.clear();
  return true;
}

bool Link::is_paused() {
  if (!in_ && Clock::now() >= opens_) {
    open();
  }
  return !in_;
}

void Link::ask(std::string_view commands) {
  ready_ = false;
  asked_ = Clock::now();
  send(fmt::format("{}say dtrain-ready {}\n", commands, id_));
}

bool Link::read_answer() {
  if (is_paused()) {
    return true;
  }
  char byte = 0;
  while (!ready_) {
    const auto count = read(out_.get(), &byte, 1); // What follows the answer is the rank's.
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 && errno == EAGAIN;
    }
    if (byte != '\n') {
      if (line_.size() < k_longest_line) {
        line_ += byte;
      }
      continue;
    }
    take_line(line_);
    line_.clear();
  }
  return true;
}

/// A login's own greetings come first.
void Link::take_line(const std::string& line) {
  const auto rest = [&](std::string_view key) -> std::optional<std::string> {
    return line.starts_with(key) ? std::optional(printable(line.substr(key.size()))) : std::nullopt;
  };
  if (!greeted_) {
    greeted_ = line == "dtrain-host " + id_;
  } else if (line == "dtrain-ready " + id_) {
    ready_ = true;
    read_what_is_there(err_); // A banner, and what the login said.
    read_what_is_there(log_);
  } else if (const auto what = rest("lacks ")) {
    facts_.lacks.push_back(*what);
  } else if (const auto digest = rest("wants "); digest && facts_.wants.size() < k_most_facts) {
    facts_.wants.push_back(*digest);
  } else if (const auto address = rest("address ")) {
    facts_.address = *address;
  } else if (const auto sshd = rest("sshd ")) {
    facts_.sshd = *sshd;
  } else if (const auto machine = rest("machine ")) {
    facts_.machine = *machine;
  } else if (const auto gpus = rest("gpus ")) {
    facts_.gpus = *gpus;
  } else if (const auto clock = rest("clock ")) {
    std::int64_t seconds = 0;
    std::from_chars(clock->data(), clock->data() + clock->size(), seconds);
    facts_.ahead = seconds - time_now() / k_second;
  } else if (const auto port = rest("port "); port && facts_.ports.size() < k_most_facts) {
    int number = 0;
    std::from_chars(port->data(), port->data() + port->size(), number, k_hex);
    facts_.ports.insert(number);
  }
}

void Link::send(std::string_view text) {
  unsent_ += text;
  flush();
}

bool Link::flush() {
  while (in_ && !unsent_.empty()) {
    const auto count = write(in_.get(), unsent_.data(), unsent_.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return errno == EAGAIN;
    }
    unsent_.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

std::string Link::loss() {
  log_end_.reset();
  auto said = read_what_is_there(log_);
  if (said.empty() && !ready_) {
    said = read_what_is_there(err_);
  }
  turned_away_ = !ready_ && is_turned_away(said);
  return said.empty() ? "" : explain_loss(host_, said);
}

} // namespace dtrain::ssh
