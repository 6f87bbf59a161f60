// The machine on which the queue's commands run: this one, or the one of --login-host, over ssh.
// The code is the same: our scripts, run by sh. On this machine the most frequent operations do
// without sh (submission.h, records_here.h).
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

  /// The same on this terminal, until it ends: returns its exit code.
  int run_in_foreground(const std::string& script, const std::vector<std::string>& args) const;

  /// Returns its stdout. If the exit code is not 0, throws EngineError with the first line of its
  /// stderr, which has the cause.
  std::string run(const std::string& script, const std::vector<std::string>& args = {},
                  std::string input = {}) const;

  /// The words of ssh's before the host: one connection is kept for all that is run, by a socket of
  /// ours, until nothing has been run for some seconds; one that does not answer is given up.
  std::vector<std::string> ssh_words() const;

  bool is_here() const { return host_.empty(); }

  /// Starts one of the queue's own commands, on this machine. Throws EngineError if it is not
  /// there.
  std::unique_ptr<Subprocess> start(const Command& command) const;

  /// Throws EngineError of a script or a command that failed, as run() does.
  [[noreturn]] void refuse(const CommandResult& result) const;

  /// " on login1"; empty of this machine.
  std::string place() const { return host_.empty() ? "" : " on " + host_; }

 private:
  const QueueSystem* system_;
  std::string host_;
  mutable std::vector<std::string> ssh_words_; ///< Set once they are known.
};

} // namespace dtrain::batch
