// What pack.sh (templates/files) sends of an instance's files, wherever an engine has it run.
#pragma once

#include "backends/job_output.h"
#include "backends/support/os/subprocess.h"

#include <string>
#include <string_view>

namespace dtrain {

std::string pack_script();

/// What it sends on stdout: what a login there prints first is no part of the archive.
class PackedFiles {
 public:
  explicit PackedFiles(const ByteSink& sink) : sink_(&sink) {}

  void add(std::string_view bytes);

 private:
  const ByteSink* sink_;
  bool has_begun_ = false;
  std::string before_;
};

/// Throws what pack.sh said on stderr. `where`: "mnist/worker-0 on node1".
[[noreturn]] void refuse_packed(const std::string& where, int exit_code, std::string_view errors);

/// Runs what runs pack.sh. How it ended, when that is none of pack.sh's ways, is the caller's.
CommandResult read_packed(const Command& command, const std::string& where, const ByteSink& sink);

} // namespace dtrain
