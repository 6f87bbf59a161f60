// The machine that the queue's commands are run on: this one, or over ssh the one that --login-host
// names. The code is the same: what is done there is one of our scripts, run by sh. On this machine
// what a user waits for most often goes without sh (submission.h, records_here.h).
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/support/os/subprocess.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::batch {

class Login {
 public:
  /// `host`: as ssh takes it; empty: this machine.
  Login(const QueueSystem& system, std::string host) : system_(&system), host_(std::move(host)) {}

  const QueueSystem& system() const { return *system_; }

  /// `script` with `args` as "$1" …, its stdin `input`.
  Command command(const std::string& script, const std::vector<std::string>& args,
                  std::string input = {}) const;

  /// The same on this terminal, to its end: its exit code.
  int run_in_foreground(const std::string& script, const std::vector<std::string>& args) const;

  /// Its stdout. Throws EngineError with what it said on stderr where it ends with another exit
  /// code than 0; its first line, since that has the cause.
  std::string run(const std::string& script, const std::vector<std::string>& args = {},
                  std::string input = {}) const;

  /// The words of ssh's before the host: one connection is kept for all that is run, by a socket of
  /// ours, until nothing has been run for some seconds; one that does not answer is given up.
  std::vector<std::string> ssh_words() const;

  bool is_here() const { return host_.empty(); }

  /// One of the queue's own commands, on this machine. Throws EngineError where it has none.
  std::unique_ptr<Subprocess> start(const Command& command) const;

  /// Throws EngineError of a script or a command that failed, as run() does.
  [[noreturn]] void refuse(const CommandResult& result) const;

  /// " on login1"; empty of this machine.
  std::string place() const { return host_.empty() ? "" : " on " + host_; }

 private:
  const QueueSystem* system_;
  std::string host_;
  mutable std::vector<std::string> ssh_words_; ///< Once they are known.
};

} // namespace dtrain::batch
