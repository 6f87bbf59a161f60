#include "backends/local/programs.h"

#include "backends/local/mounts.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace dtrain {

namespace {

constexpr const char* k_this_program = "/proc/self/exe";
constexpr const char* k_default_path = "/bin:/usr/bin"; ///< execvp's, without PATH.

bool is_runnable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// Where what the job finds at `path` is before its data is mounted.
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

} // namespace

std::string inherited_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : k_default_path;
}

std::string find_program(const std::string& name) {
  const std::string path = inherited_path();
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    auto candidate = path.substr(at, end - at) + "/" + name;
    if (candidate[0] == '/' && is_runnable(candidate)) {
      return candidate;
    }
    at = end + 1;
  }
  return "";
}

std::string find_trainer() {
  if (const char* named = std::getenv("DTRAIN_TRAINER"); named != nullptr && *named != '\0') {
    if (!is_runnable(named)) {
      throw UsageError(fmt::format("DTRAIN_TRAINER={} is not executable: set it to the "
                                   "trainer's path, or unset it",
                                   printable(named)));
    }
    return std::filesystem::absolute(named).string();
  }
  std::error_code error;
  const auto self = std::filesystem::read_symlink(k_this_program, error);
  auto beside = (self.parent_path() / "dtrain-trainer").string();
  return !error && is_runnable(beside) ? beside : std::string();
}

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

void require_startable(const GangPlan& plan, const std::string& inherited) {
  struct stat info {};
  const std::string working_dir = without_mounts(plan, plan.working_dir);
  if (stat(working_dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    throw UsageError(fmt::format("working directory {} is not a folder: give another",
                                 printable(plan.working_dir)));
  }
  for (const auto& mount : plan.mounts) {
    if (stat(mount.source.c_str(), &info) != 0) {
      throw UsageError(fmt::format("there is nothing to mount at {}: {}: {}",
                                   printable(mount.target), printable(mount.source), errno_text()));
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
