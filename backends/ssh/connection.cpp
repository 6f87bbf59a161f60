#include "backends/ssh/connection.h"

#include "backends/support/os/pipe.h"
#include "backends/support/os/random.h"
#include "backends/support/os/spawn.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain::ssh {

namespace {

constexpr std::size_t k_agent_word_bytes = 16;
constexpr std::size_t k_read_bytes = 65536;

std::string agent_script(const std::string& word, const AgentSetting& setting) {
  constexpr int k_ms = 1000;
  return fmt::format(
             "agent={}\njob={}\nnumber={}\nhost_timeout={}\ngrace={}\nchosen={}\nwithout={}\n",
             word, quote_sh(setting.job), setting.number, setting.host_timeout.count(),
             (setting.grace_ms + k_ms - 1) / k_ms,
             quote_sh(fmt::format("{}", fmt::join(setting.gpus, " "))),
             quote_sh(fmt::format("{}", fmt::join(setting.without_gpus, " ")))) +
         std::string(builtin_template("ssh/facts.sh").text) +
         std::string(builtin_template("ssh/agent.sh").text);
}

/// Reads the script from stdin and becomes it. A dd that does not know fullblock says so before it
/// reads; byte by byte takes ten times as long.
std::string loading(std::size_t bytes) {
  return "exec sh -c " +
         quote_sh(fmt::format("script=$(dd bs={0} count=1 iflag=fullblock 2>/dev/null); "
                              "[ -n \"$script\" ] || script=$(dd bs=1 count={0} 2>/dev/null); "
                              "eval \"$script\"",
                              bytes));
}

} // namespace

Connection::Connection(std::string host, const AgentSetting& setting, const Connect& connect)
    : host_(std::move(host)), word_(random_hex(k_agent_word_bytes)), frames_(word_),
      block_(k_read_bytes) {
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  auto log = make_pipe();
  const auto script = agent_script(word_, setting);
  pid_ = spawn({.argv = connect(host_, fmt::format("/proc/{}/fd/{}", getpid(), log.write_end.get()),
                                loading(script.size())),
                .in = in.read_end.get(),
                .out = out.write_end.get(),
                .err = err.write_end.get(),
                .leads_group = true});
  in_ = std::move(in.write_end);
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
  log_ = std::move(log.read_end);
  log_end_ = std::move(log.write_end);
  constexpr int k_roomy = 1 << 20; // Large enough to take a script at once.
  fcntl(in_.get(), F_SETPIPE_SZ, k_roomy);
  for (const auto* fd : {&in_, &out_, &err_, &log_}) {
    make_non_blocking(*fd);
  }
  send(script);
}

Connection::~Connection() {
  if (pid_ != 0) {
    kill(-pid_, SIGKILL); // The group includes a ProxyCommand.
    wait_for_child(pid_);
  }
}

bool Connection::receive(const FrameReader::Take& take) {
  const auto count = read(out_.get(), block_.data(), block_.size());
  if (count < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  if (count == 0) {
    return false;
  }
  heard_ = Clock::now();
  frames_.read({block_.data(), static_cast<std::size_t>(count)}, take);
  return true;
}

void Connection::claim(RankId key, int gpus, std::string_view but) {
  send(fmt::format("claim {} {} {}\n", key, gpus, but));
}

void Connection::free(RankId key) { send(fmt::format("free {}\n", key)); }

void Connection::signal(RankId key, int signal) {
  send(fmt::format("signal {} {}\n", key, sigabbrev_np(signal)));
}

void Connection::signal_all(int signal) {
  send(fmt::format("signal all {}\n", sigabbrev_np(signal)));
}

void Connection::heartbeat() {
  if (unsent_.empty()) {
    send("heartbeat 0\n");
  }
}

void Connection::end() {
  unsent_.clear();
  in_.reset();
}

void Connection::request(std::string_view word, RankId key, std::string_view script) {
  send(fmt::format("{} {} {}\n", word, key, script.size()));
  send(script);
}

void Connection::send(std::string_view text) {
  unsent_ += text;
  flush();
}

bool Connection::flush() {
  while (!unsent_.empty() && in_) {
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

std::string Connection::said() {
  log_end_.reset();
  auto text = read_what_is_there(log_);
  if (text.empty() && !is_open()) {
    text = read_what_is_there(err_);
  }
  return text;
}

} // namespace dtrain::ssh
