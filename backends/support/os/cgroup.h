// A control group that holds a job's processes. Whoever forks, leaves its session or outlives its
// parents stays in, so that a job can be ended whole even where nobody who looked after it is left.
//
// Version 2 is taken where this process may make groups below its own, then version 1 (the
// freezer's, or any). Where neither is to be had there is none, and processes are found by their
// parents and by their environment instead.
#pragma once

#include "backends/support/os/process.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

class Cgroup {
 public:
  /// Makes a group of that name below this process's own. DTRAIN_CGROUPS=v2, v1 or none says which
  /// are tried. Where this process has one but none can be made below it, `problem` says why.
  static std::optional<Cgroup> make(const std::string& name, std::string& problem);

  /// An existing one, by its path.
  explicit Cgroup(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  /// fork() with the child inside. A child that cannot be is outside.
  pid_t fork() const;

  /// Sends SIGKILL to everything inside, and returns the processes. They may not have ended yet,
  /// and may have forked: to end all, repeat until it returns nothing.
  std::vector<ProcessId> kill() const;

  /// An empty one goes.
  void remove() const;

 private:
  std::string path_;
};

} // namespace dtrain
