#include "backends/kubernetes/connect/exec.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/status.h"
#include "backends/support/files/packed_files.h"
#include "backends/support/os/files.h"
#include "backends/support/os/random.h"
#include "backends/support/os/raw_terminal.h"
#include "backends/support/os/signal_fd.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <optional>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

struct ContainerRef {
  std::string namespace_name;
  std::string pod;
  std::string container;
};

struct Ending {
  int code = 0;
  bool by_us = false; ///< Not by the command.
};

constexpr const char* k_protocol_5 = "v5.channel.k8s.io";
constexpr const char* k_protocol_4 = "v4.channel.k8s.io";

constexpr char k_input = 0;
constexpr char k_output = 1;
constexpr char k_errors = 2;
constexpr char k_end = 3;
constexpr char k_size = 4;
constexpr char k_channel_ended = static_cast<char>(255);

constexpr int k_signal_base = 128;
constexpr std::size_t k_mark_bytes = 16;
constexpr std::chrono::seconds k_end_timeout{5};

/// Ends processes with the mark, "$1", in their environment, or in their arguments if the shell
/// itself is the program (busybox). Uses only the shell's own commands, since an image may have no
/// others: its read drops the NULs.
constexpr const char* k_end_marked = R"(for process in /proc/[0-9]*; do
  [ "$process" = "/proc/$$" ] || for file in environ cmdline; do
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"$1"*) kill -TERM "${process#/proc/}"; break 2 ;; esac
    done <"$process/$file"
  done
done 2>/dev/null)";

constexpr std::size_t k_errors_kept = 64U << 10;
constexpr std::size_t k_stdin_block = 32U << 10;
constexpr std::size_t k_most_unsent = 256U << 10; // More is not read from our input until it went.

/// A closed input, or /dev/null: the command need not have one.
bool has_input() {
  constexpr unsigned k_null_major = 1;
  constexpr unsigned k_null_minor = 3;
  struct stat info {};
  return fstat(STDIN_FILENO, &info) == 0 &&
         !(S_ISCHR(info.st_mode) && info.st_rdev == makedev(k_null_major, k_null_minor));
}

/// False where nobody reads it any more.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (count < 0 && errno == EPIPE) {
      return false;
    } else if (count < 0 && errno != EINTR) {
      throw Error(fmt::format("cannot write the command's output: {}", errno_text()));
    } else if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  return true;
}

/// Sinks of its output and errors. They return false if nobody reads them any more.
struct Outputs {
  using Write = std::function<bool(std::string_view)>;
  Write out = [](std::string_view bytes) { return write_all(STDOUT_FILENO, bytes); };
  Write errors = [](std::string_view bytes) { return write_all(STDERR_FILENO, bytes); };
};

class Session {
 public:
  Session(WebSocket& socket, bool on_terminal, bool has_input, const Outputs& outputs)
      : socket_(socket), on_terminal_(on_terminal), has_input_(has_input), outputs_(outputs) {}

  Ending run() {
    const SignalFd signals{SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    std::optional<RawTerminal> raw;
    if (on_terminal_) {
      raw.emplace(STDIN_FILENO);
      send_size();
    }
    socket_.pump();
    for (;;) {
      while (const std::optional<std::string> message = socket_.next()) {
        if (!receive(*message)) {
          return {k_signal_base + SIGPIPE, true};
        }
      }
      if (code_) {
        return {*code_, false};
      }
      if (socket_.ended()) {
        throw EngineError("the cluster ended the connection before the command had ended");
      }
      if (const int signal = wait(signals); signal != 0) {
        return {k_signal_base + signal, true};
      }
    }
  }

 private:
  /// Waits until something has arrived, and handles it. Returns the signal that ends us, or 0.
  int wait(const SignalFd& signals) {
    constexpr std::size_t k_stdin = 2;
    const bool reads = has_input_ && socket_.unsent() < k_most_unsent;
    std::array<pollfd, 3> entries{{{signals.fd(), POLLIN, 0},
                                   {socket_.fd(), socket_.events(), 0},
                                   {reads ? STDIN_FILENO : -1, POLLIN, 0}}};
    const auto longest = std::chrono::milliseconds(WebSocket::k_ping_interval);
    poll(entries.data(), entries.size(),
         socket_.has_more() ? 0 : static_cast<int>(longest.count()));
    if (entries[0].revents != 0) {
      const int signal = signals.take();
      if (signal == SIGWINCH) {
        send_size();
      } else if (signal != 0) {
        return signal;
      }
    }
    if (entries[k_stdin].revents != 0) {
      read_input();
    }
    socket_.pump();
    return 0;
  }

  void read_input() {
    std::array<char, k_stdin_block> block; // NOLINT(*-member-init): only what was read is used
    block[0] = k_input;
    const ssize_t count = read(STDIN_FILENO, &block[1], block.size() - 1);
    if (count > 0) {
      socket_.send({block.data(), static_cast<std::size_t>(count) + 1});
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      has_input_ = false;
      if (socket_.protocol() == k_protocol_5) {
        socket_.send({std::array<char, 2>{k_channel_ended, k_input}.data(), 2});
      }
    }
  }

  /// False where nobody reads our output any more.
  bool receive(std::string_view message) {
    if (message.empty()) {
      return true;
    }
    const std::string_view bytes = message.substr(1);
    switch (message[0]) {
    case k_output:
      return outputs_.out(bytes);
    case k_errors:
      return outputs_.errors(bytes);
    case k_end:
      if (!bytes.empty()) { // An empty one opens the channel.
        code_ = exit_code_of(json::parse(bytes, nullptr, false));
      }
      return true;
    default:
      return true;
    }
  }

  void send_size() {
    const TerminalSize size = terminal_size(STDOUT_FILENO);
    if (on_terminal_ && size.columns > 0) {
      socket_.send(k_size + fmt::format(R"({{"Width":{},"Height":{}}})", size.columns, size.rows));
    }
  }

  WebSocket& socket_;
  bool on_terminal_;
  bool has_input_;
  const Outputs& outputs_;
  std::optional<int> code_;
};

std::string exec_path(const ContainerRef& container) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}/exec", escape_url(container.namespace_name),
                     escape_url(container.pod));
}

/// `on_terminal`: on ours, with its input.
Ending run_in_container(ApiClient& api, const ContainerRef& container,
                        const std::vector<std::string>& command, bool on_terminal, bool input,
                        const Outputs& outputs) {
  Query query = {{"container", container.container}};
  for (const std::string& word : command) {
    query.emplace_back("command", word);
  }
  query.emplace_back("stdin", input ? "true" : "false");
  query.emplace_back("stdout", "true");
  query.emplace_back("stderr", on_terminal ? "false" : "true"); // A terminal has one output.
  query.emplace_back("tty", on_terminal ? "true" : "false");
  std::vector<std::string> protocols = {k_protocol_5};
  if (on_terminal || !input) { // Version 4 cannot say that the input has ended.
    protocols.emplace_back(k_protocol_4);
  }
  const auto socket = api.open_socket(exec_path(container), query, protocols);
  return Session(*socket, on_terminal, input, outputs).run();
}

/// Ends the container's processes that have the mark, as well as it can within a few seconds.
void end_marked(ApiClient& api, const ContainerRef& container, const std::string& mark) {
  try {
    const auto deadline = WebSocket::Clock::now() + k_end_timeout;
    const auto socket = api.open_socket(exec_path(container),
                                        {{"container", container.container},
                                         {"command", "/bin/sh"},
                                         {"command", "-c"},
                                         {"command", k_end_marked},
                                         {"command", "dtrain"},
                                         {"command", mark},
                                         {"stdout", "true"}},
                                        {k_protocol_5, k_protocol_4});
    while (!socket->ended() && WebSocket::Clock::now() < deadline) {
      constexpr int k_turn_ms = 500;
      pollfd entry{socket->fd(), socket->events(), 0};
      poll(&entry, 1, k_turn_ms);
      socket->pump();
      while (const std::optional<std::string> message = socket->next()) {
        if (message->size() > 1 && message->front() == k_end) {
          return;
        }
      }
    }
  } catch (const EngineError&) { // We are ending, and for another reason.
    return;
  }
}

/// The instance's Pod; null where it has none.
const json* pod_of(const JobObjects& objects, const std::string& instance) {
  const std::vector<InstanceStatus> instances = status_of(objects).instances;
  const std::vector<const json*> pods = latest_pods(objects);
  for (std::size_t i = 0; i < instances.size(); ++i) {
    if (instances[i].name == instance) {
      return pods.at(i);
    }
  }
  return nullptr;
}

const json& main_container(const json& pod, std::string_view containers) {
  for (const json& container : member(pod, containers)) {
    if (text_at(container, "name") == k_container) {
      return container;
    }
  }
  return member(pod, "none");
}

} // namespace

int exit_code_of(const json& status) {
  if (text_at(status, "status") == "Success") {
    return 0;
  }
  for (const json& cause : member(status, "details/causes")) {
    const std::string text = text_at(cause, "message");
    int code = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), code);
    if (text_at(cause, "reason") == "ExitCode" && !text.empty() && end.ec == std::errc() &&
        end.ptr == text.data() + text.size()) {
      return code;
    }
  }
  const std::string message = text_at(status, "message");
  throw EngineError(fmt::format("the command was not run: {}", message.empty()
                                                                   ? "the cluster gave no reason"
                                                                   : printable(message)));
}

int exec_beside(ApiClient& api, const JobRef& job, const std::string& instance,
                const std::vector<std::string>& command) {
  const JobObjects objects = read_objects(api, job);
  const json* pod = pod_of(objects, instance);
  if (pod == nullptr ||
      member(main_container(*pod, "status/containerStatuses"), "state/running").is_null()) {
    const std::string why = status_of(objects).reason;
    throw EngineError(fmt::format("{} of job {} is not running{}; nothing to exec into",
                                  printable(instance), printable(job.name),
                                  why.empty() ? "" : fmt::format(" ({})", why)));
  }
  // "/bin/sh SCRIPT": the script knows the variables.
  std::vector<std::string> words;
  for (const json& word : member(main_container(*pod, "spec/containers"), "command")) {
    words.push_back(word.is_string() ? word.get<std::string>() : "");
  }
  const bool ours = words.size() == 2 && words[1].starts_with("/etc/dtrain/");
  const std::string mark = random_hex(k_mark_bytes);
  if (ours) {
    words.insert(words.end(), {"beside", mark});
  } else { // A template of the user's own.
    words.clear();
  }
  words.insert(words.end(), command.begin(), command.end());
  const ContainerRef container{job.namespace_name, text_at(*pod, "metadata/name"), k_container};
  const bool on_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  const Ending ending =
      run_in_container(api, container, words, on_terminal, on_terminal || has_input(), {});
  if (ending.by_us && ours) {
    end_marked(api, container, mark);
  }
  return ending.code;
}

void read_files(ApiClient& api, const JobRef& job, const std::string& instance,
                const std::string& path, const ByteSink& sink) {
  const JobObjects objects = read_objects(api, job);
  const json* pod = pod_of(objects, instance);
  if (pod == nullptr ||
      member(main_container(*pod, "status/containerStatuses"), "state/running").is_null()) {
    throw EngineError(fmt::format("{} of job {} is not running, and its Pod's files are gone: copy "
                                  "while it runs, or write to a volume (--data)",
                                  printable(instance), printable(job.name)));
  }
  PackedFiles files(sink);
  std::string errors;
  const Outputs outputs{.out =
                            [&](std::string_view bytes) {
                              files.add(bytes);
                              return true;
                            },
                        .errors =
                            [&](std::string_view bytes) {
                              errors += bytes.substr(0, k_errors_kept - errors.size());
                              return true;
                            }};
  const ContainerRef container{job.namespace_name, text_at(*pod, "metadata/name"), k_container};
  const Ending ending = run_in_container(
      api, container, {"sh", "-c", pack_script(), "dtrain", ".", path}, false, false, outputs);
  if (ending.by_us) {
    throw Interrupted("interrupted; nothing was copied", ending.code - k_signal_base);
  }
  if (ending.code != 0) {
    refuse_packed(fmt::format("{}/{}", job.name, instance), ending.code, errors);
  }
}

} // namespace dtrain::kubernetes
