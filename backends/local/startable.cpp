#include "backends/local/startable.h"

#include "backends/local/mounts.h"
#include "backends/supervised/programs.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace dtrain {

namespace {

/// The path on this machine, before the job's data is mounted, of what the job sees at `path`.
std::string without_mounts(const GangPlan& plan, const std::string& path) {
  const Mount* nearest_mount = nullptr;
  for (const Mount& mount : plan.mounts) {
    const bool is_below = path.starts_with(mount.target) &&
                          (path.size() == mount.target.size() || path[mount.target.size()] == '/');
    if (is_below &&
        (nearest_mount == nullptr || mount.target.size() > nearest_mount->target.size())) {
      nearest_mount = &mount;
    }
  }
  return nearest_mount == nullptr
             ? path
             : nearest_mount->source + path.substr(nearest_mount->target.size());
}

/// Throws UsageError where `program` cannot be run, found as execvp would in `path`.
void require_program(const std::string& program, const std::string& path,
                     const std::string& working_dir) {
  const auto in_folder = [&](const std::string& folder) {
    return std::filesystem::path(working_dir) / folder / program;
  };
  if (program.find('/') != std::string::npos) {
    if (!is_runnable(in_folder(""))) {
      throw UsageError(
          fmt::format("cannot run {}: {}", printable(program),
                      access(in_folder("").c_str(), F_OK) == 0
                          ? "it is not executable (chmod +x makes it so)"
                          : "there is no such file; give its path from " + printable(working_dir)));
    }
    return;
  }
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    if (!program.empty() && is_runnable(in_folder(path.substr(at, end - at)))) {
      return;
    }
    at = end + 1;
  }
  throw UsageError(fmt::format("cannot run '{}': no program of that name in PATH; give its path",
                               printable(program)));
}

} // namespace

void require_startable(const GangPlan& plan, const std::string& inherited) {
  struct stat info {};
  const std::string working_dir = without_mounts(plan, plan.working_dir);
  if (stat(working_dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    throw UsageError(fmt::format("working directory {} is not a folder: give another",
                                 printable(plan.working_dir)));
  }
  for (const auto& mount : plan.mounts) {
    if (stat(mount.source.c_str(), &info) != 0) {
      throw UsageError(fmt::format("cannot mount {1} on {0}: {2}", printable(mount.target),
                                   printable(mount.source), errno_text()));
    }
  }
  check_mounts(plan.mounts);
  std::string path = inherited;
  for (const auto& [key, value] : plan.env) {
    if (key == "PATH") {
      path = value;
    }
  }
  std::string folders;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    folders += (at == 0 ? "" : ":") + without_mounts(plan, path.substr(at, end - at));
    at = end + 1;
  }
  require_program(without_mounts(plan, plan.command.front()), folders, working_dir);
}

} // namespace dtrain
