#include "backends/ssh/fan_out.h"

#include "backends/ssh/login_line.h"
#include "backends/ssh/ssh_command.h"
#include "backends/ssh/turned_away.h"
#include "backends/supervised/programs.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/spawn.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <list>
#include <map>
#include <numeric>
#include <sstream>
#include <string_view>
#include <thread>

namespace dtrain::ssh {

namespace {

constexpr std::size_t k_longest_answer = std::size_t{1} << 20U; ///< From one host.
constexpr std::string_view k_end = "dtrain-end"; ///< The last line of one that answered.
constexpr std::chrono::seconds k_command_timeout{30};

HostAnswer answer_of(const std::string& host, const std::string& said) {
  HostAnswer answer;
  std::istringstream text(said);
  bool ended = false;
  for (std::string line; std::getline(text, line);) {
    ended = line == k_end;
    if (!ended) {
      answer.lines.push_back(printable(line));
    }
  }
  if (!ended) {
    answer.lines.clear();
    const auto why = explain_loss(host, said);
    answer.failure = why.empty() ? "it does not answer" : why;
  }
  return answer;
}

std::string command_line(const std::string& script, const std::vector<std::string>& words) {
  return login_line(script + fmt::format("echo {}\n", k_end), words);
}

/// pdsh puts the host's name in front of each line; it cuts off a domain that all of them have.
std::vector<std::string> ask_by_pdsh(const std::string& pdsh, const std::vector<std::string>& hosts,
                                     const std::string& line) {
  std::vector<std::string> argv{pdsh,
                                "-R",
                                "exec",
                                "-f",
                                fmt::format("{}", k_most_connecting),
                                "-w",
                                fmt::format("{}", fmt::join(hosts, ","))};
  std::string escaped;
  for (const char c : line) {
    escaped += c == '%' ? "%%" : std::string(1, c);
  }
  for (const auto& word : ssh_command("%h", escaped)) {
    argv.push_back(word);
  }
  const auto result = run_command({.argv = argv, .limit = k_command_timeout});
  std::vector<std::string> said(hosts.size());
  for (const auto* output : {&result.errors, &result.out}) { // The end of the script's is the last.
    std::istringstream text(*output);
    for (std::string each; std::getline(text, each);) {
      const auto colon = each.find(": ");
      for (std::size_t i = 0; i < hosts.size() && colon != std::string::npos; ++i) {
        const auto label = std::string_view(each).substr(0, colon);
        if (label == hosts[i] || hosts[i].starts_with(std::string(label) + ".")) {
          said[i] += each.substr(colon + 2) + "\n";
        }
      }
    }
  }
  return said;
}

class Asked {
 public:
  Asked(std::size_t number, const std::string& host, const std::string& line) : number_(number) {
    auto out = make_pipe();
    const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    pid_ = spawn({.argv = ssh_command(host, line),
                  .in = null.get(),
                  .out = out.write_end.get(),
                  .err = out.write_end.get(),
                  .leads_group = true});
    out_ = std::move(out.read_end);
    make_non_blocking(out_);
  }
  ~Asked() {
    kill(-pid_, SIGKILL);
    wait_for_child(pid_);
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  std::size_t number() const { return number_; }
  int out() const { return out_.get(); }

  /// False at its end.
  bool read_some(std::string& text) const {
    std::array<char, 4096> block{};
    ssize_t count = 0;
    while ((count = read(out_.get(), block.data(), block.size())) > 0) {
      if (text.size() < k_longest_answer) {
        text.append(block.data(), static_cast<std::size_t>(count));
      }
    }
    return count < 0 && errno == EAGAIN;
  }

 private:
  std::size_t number_;
  pid_t pid_ = 0;
  Fd out_;
};

std::vector<std::string> ask_by_ssh(const std::vector<std::string>& hosts,
                                    const std::string& line) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> said(hosts.size());
  std::list<Asked> asked;
  std::size_t next = 0;
  const auto deadline = Clock::now() + k_command_timeout;
  while ((next < hosts.size() || !asked.empty()) && Clock::now() < deadline) {
    for (; next < hosts.size() && asked.size() < k_most_connecting; ++next) {
      asked.emplace_back(next, hosts[next], line);
    }
    std::vector<pollfd> descriptors;
    for (const auto& each : asked) {
      descriptors.push_back({each.out(), POLLIN, 0});
    }
    constexpr int k_round_ms = 1000;
    poll(descriptors.data(), descriptors.size(), k_round_ms);
    asked.remove_if([&](const Asked& each) { return !each.read_some(said[each.number()]); });
  }
  return said;
}

} // namespace

std::vector<HostAnswer> ask_hosts(const std::vector<std::string>& hosts, const std::string& script,
                                  const std::vector<std::string>& words) {
  const auto line = command_line(script, words);
  // pdsh takes the part before
  //  as a user's name.
  const bool is_plain = std::none_of(hosts.begin(), hosts.end(), [](const std::string& host) {
    return host.find('@') != std::string::npos;
  });
  const auto pdsh = is_plain ? find_program("pdsh") : "";
  const auto ask = [&](const std::vector<std::string>& some) {
    return pdsh.empty() ? ask_by_ssh(some, line) : ask_by_pdsh(pdsh, some, line);
  };
  std::vector<HostAnswer> answers(hosts.size());
  std::vector<std::size_t> open(hosts.size());
  std::iota(open.begin(), open.end(), 0U);
  for (int tries = 0; !open.empty(); ++tries) {
    std::this_thread::sleep_for(pause_before(tries));
    std::vector<std::string> asked;
    std::transform(open.begin(), open.end(), std::back_inserter(asked),
                   [&](std::size_t number) { return hosts[number]; });
    const auto said = ask(asked);
    std::vector<std::size_t> again;
    for (std::size_t i = 0; i < open.size(); ++i) {
      auto& answer = answers[open[i]] = answer_of(asked[i], said[i]);
      if (!answer.failure.empty() && is_turned_away(said[i]) && tries < k_most_tries) {
        again.push_back(open[i]);
      }
    }
    open = again;
  }
  return answers;
}

} // namespace dtrain::ssh
