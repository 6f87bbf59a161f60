// A program that is run and waited for: git, tar, a credential plug-in, ssh.
//
// One poll loop reads both of its outputs, watches for its end and enforces its time limit, so that
// no pipe fills up while another is waited for, and a daemon that it leaves behind is not waited
// for.
#pragma once

#include "backends/support/os/fd.h"
#include "backends/support/os/poll_loop.h"

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

struct Command {
  std::vector<std::string> argv; ///< The program is looked for in PATH; no shell reads them.
  std::vector<std::pair<std::string, std::string>> env = {}; ///< Added to our environment.
  std::vector<std::string> without = {}; ///< Variables of ours that are not for it.
  std::string folder = {};               ///< Where it starts; empty: here.
  std::string input = {};                ///< Its stdin, any bytes.
  bool is_fed = false;                   ///< Its stdin comes from feed(), not from `input`.
  bool shows_errors = false;             ///< Its stderr is ours, and not kept.
  /// It is killed after this time, together with its process group, which is then its own: signals
  /// of the terminal do not reach it.
  std::optional<std::chrono::milliseconds> limit = {};
};

struct Ending {
  int exit_code = 0;
  int signal = 0;    ///< The signal that ended it; 0: none.
  bool late = false; ///< It was killed at its limit.

  bool good() const { return exit_code == 0 && signal == 0 && !late; }
};

struct CommandResult {
  Ending ending;
  std::string out;
  std::string errors;
};

class Subprocess {
 public:
  static constexpr std::size_t k_errors_kept = 65536;

  /// Throws EngineError: "git cannot be run: No such file or directory".
  explicit Subprocess(const Command& command);

  /// Kills what still runs.
  ~Subprocess();

  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  /// For a program with is_fed: adds to its stdin. Blocks while nobody reads it, so feed a little
  /// at a time, and wait for answers; bytes for a program that has ended are lost.
  void feed(std::string_view bytes);

  /// Ends its input: nothing more is fed.
  void end_input() { in_.reset(); }

  /// Some of its stdout, once there is some; empty at its end. Valid until the next call.
  std::string_view read_some();

  /// Waits for its end; discards the rest of its stdout.
  Ending wait();

  /// Waits for its end: all that it says from now on.
  CommandResult result();

  /// Lets it end by itself, and returns the last line of its stderr so far. The object may not be
  /// used afterwards.
  void leave();

  /// The last k_errors_kept of its stderr, so far.
  const std::string& errors() const { return errors_; }

 private:
  void step();
  void read_output();
  void read_errors();
  void reap();
  void kill_all() const;

  PollLoop loop_;
  PollLoop::Clock::time_point deadline_ = PollLoop::Clock::time_point::max();
  bool leads_group_;
  pid_t pid_ = 0; ///< 0: waited for.
  Fd end_;        ///< Its pidfd.
  Fd in_;         ///< If it is fed.
  Fd out_;
  Fd err_;
  std::unique_ptr<char[]> block_; // NOLINT(*-avoid-c-arrays): not filled with zeros first.
  std::string_view pending_;      ///< In the block, not returned yet.
  std::string errors_;
  Ending ending_;
};

/// Runs it to its end. Throws as Subprocess does.
CommandResult run_command(const Command& command);

/// `base` ("KEY=VALUE" each) without the variables named in `without`, with `changes` added; the
/// last value of a key wins.
std::vector<std::string>
merge_environment(const char* const* base,
                  const std::vector<std::pair<std::string, std::string>>& changes,
                  const std::vector<std::string>& without = {});

/// The last line of a program's output, for people.
std::string last_line(std::string_view text);

} // namespace dtrain
