// The output of pack.sh (templates/files), which packs an instance's files, wherever an engine runs
// it.
#pragma once

#include "backends/job_output.h"
#include "backends/support/os/subprocess.h"

#include <string>
#include <string_view>

namespace dtrain {

std::string pack_script();

/// Reads its stdout: what a login prints before is not part of the archive.
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

/// Runs a command that runs pack.sh. If it ended in a way that pack.sh does not, the caller handles
/// that.
CommandResult read_packed(const Command& command, const std::string& where, const ByteSink& sink);

} // namespace dtrain
