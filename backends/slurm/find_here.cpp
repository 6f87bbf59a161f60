#include "backends/slurm/find_here.h"

#include "backends/batch/records_here.h"
#include "backends/slurm/cluster.h"
#include "backends/slurm/queue.h"
#include "backends/support/os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

namespace dtrain::slurm {
namespace {

/// The text between `before` and the next `end`; empty if one of them is missing.
std::string_view between(std::string_view text, std::string_view before, char end) {
  const auto begin = text.find(before);
  const auto rest = begin == std::string_view::npos ? "" : text.substr(begin + before.size());
  return rest.substr(0, rest.find(end));
}

} // namespace

std::optional<std::string> find_here(const batch::Login& login, const std::string& folder) {
  const Fd job(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!job || fstatat(job.get(), "job", &info, 0) != 0 || info.st_uid != geteuid()) {
    return std::nullopt;
  }
  const std::string line = read_file_at(job.get(), "job").value_or("");
  const auto id = between(line, R"("id":")", '"');
  if (id.empty() || line.find(R"("array":")") != std::string::npos) {
    return std::nullopt;
  }
  const auto squeue = login.start(
      {.argv = {"squeue", "--local", "--noheader", "--states=all", fmt::format("--jobs={}", id),
                fmt::format("--format={}", k_queue_format)},
       .env = login.system().environment});
  std::string records = batch::read_records_in(job.get()); // Meanwhile.
  const CommandResult said = squeue->result();
  if (!said.ending.good()) {
    if (said.errors.find("Invalid job id") == std::string::npos) {
      login.refuse(said);
    }
    return std::nullopt;
  }
  if (said.out.empty() || said.out.find("|REVOKED|") != std::string::npos) {
    return std::nullopt;
  }
  if (said.out.find("|PENDING|") == std::string::npos &&
      said.out.find("|RUNNING|") == std::string::npos) {
    records = batch::read_records_in(job.get()); // Ranks may have recorded their end only now.
  }
  return fmt::format("{}\ncluster {}\n{}\n\n{}", folder, cluster_here(), records, said.out);
}

} // namespace dtrain::slurm
