#include "backends/supervised/store/job_store.h"

#include "backends/supervised/store/job_index.h"
#include "backends/supervised/store/job_listing.h"
#include "backends/support/os/files.h"
#include "backends/support/os/machine.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>

namespace dtrain {

namespace {

constexpr const char* k_staging = "staging";

/// Names come from outside; none may lead out of the folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// "PID.START.N.BOOT.NAMESPACE.MACHINE.HOST": a staged folder belongs to a process, and is waste
/// once that has ended.
std::string staging_name(int attempt) {
  const auto self = this_process();
  const auto& machine = this_machine();
  return fmt::format("{}.{}.{}.{}.{}.{}.{}", self.pid, self.start_time, attempt, machine.boot,
                     machine.pid_namespace, machine.id, machine.host);
}

/// True where its process has ended for certain: what only another machine can know is let be.
bool is_waste(std::string_view name) {
  constexpr std::size_t k_fields = 6; // The host's name, after them, may contain dots.
  std::array<std::string_view, k_fields> fields;
  for (auto& field : fields) {
    const auto dot = name.find('.');
    if (dot == std::string_view::npos) {
      return true; // Nothing of ours.
    }
    field = name.substr(0, dot);
    name.remove_prefix(dot + 1);
  }
  const auto number = [](std::string_view text, auto& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  ProcessId owner;
  Machine machine{std::string(name), std::string(fields[5]), std::string(fields[3]), 0};
  if (!number(fields[0], owner.pid) || !number(fields[1], owner.start_time) ||
      !number(fields[4], machine.pid_namespace)) {
    return true;
  }
  const auto place = whereabouts(machine);
  return place == Whereabouts::restarted || (place == Whereabouts::here && !is_running(owner));
}

std::string last_component(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool same_file(int folder, const std::string& name, int fd) {
  struct stat a {};
  struct stat b {};
  return fstatat(folder, name.c_str(), &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

} // namespace

std::string text_of(const JobRef& job) {
  return fmt::format("{}/{}", printable(job.namespace_name), printable(job.name));
}

std::string JobStore::job_path(const JobRef& job) const {
  return fmt::format("{}/{}/{}/{}", root_, jobs_, job.namespace_name, job.name);
}

JobStore JobStore::of(const std::string& job_path) {
  const auto backend = std::filesystem::path(job_path).parent_path().parent_path();
  return {backend.parent_path().parent_path().string(), backend.filename().string()};
}

Fd JobStore::open_folder(const std::string& name, bool create) const {
  Fd folder = open_private_folder(root_, create);
  auto path = root_;
  for (std::size_t begin = 0; folder && begin < name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    path += "/" + part;
    folder = open_private_folder_at(folder.get(), part, path, create);
    begin = end + 1;
  }
  return folder;
}

JobFolder JobStore::stage() const {
  const Fd staging = open_folder(k_staging, true);
  for_each_entry(staging.get(), [&](const char* name) {
    if (is_waste(name)) {
      remove_tree_at(staging.get(), name);
    }
  });
  for (int attempt = 0;; ++attempt) {
    const auto name = staging_name(attempt);
    if (mkdirat(staging.get(), name.c_str(), 0700) != 0) {
      if (errno == EEXIST) {
        continue;
      }
      throw Error(fmt::format("cannot make a folder in {}/{}: {}", printable(root_), k_staging,
                              errno_text()));
    }
    const auto path = fmt::format("{}/{}/{}", root_, k_staging, name);
    JobFolder folder(open_private_folder_at(staging.get(), name, path, false), path);
    if (mkdirat(folder.fd(), k_logs_folder, 0700) != 0) {
      const auto reason = errno_text();
      remove_tree_at(staging.get(), name);
      throw Error(fmt::format("cannot make a folder in {}: {}", printable(path), reason));
    }
    return folder;
  }
}

bool JobStore::publish(JobFolder& folder, const JobRef& job) const {
  const Fd staging = open_folder(k_staging, true);
  const Fd jobs = open_folder(jobs_, true);
  const Fd space =
      open_private_folder_at(jobs.get(), job.namespace_name,
                             fmt::format("{}/{}/{}", root_, jobs_, job.namespace_name), true);
  // A folder is renamed over an empty one only, and a job's is never empty.
  if (renameat(staging.get(), last_component(folder.path()).c_str(), space.get(),
               job.name.c_str()) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) {
      return false;
    }
    throw Error(fmt::format("cannot make {}: {}", printable(job_path(job)), errno_text()));
  }
  folder.set_path(job_path(job));
  return true;
}

void JobStore::discard(const JobFolder& folder) const {
  const Fd staging = open_folder(k_staging, false);
  if (staging) {
    remove_tree_at(staging.get(), last_component(folder.path()));
  }
}

std::optional<JobFolder> JobStore::open(const JobRef& job) const {
  if (!is_plain_name(job.name) || !is_plain_name(job.namespace_name)) {
    return std::nullopt;
  }
  const Fd jobs = open_folder(jobs_, false);
  if (!jobs) {
    return std::nullopt;
  }
  const auto name = fmt::format("{}/{}", job.namespace_name, job.name);
  Fd folder(openat(jobs.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) {
      return std::nullopt;
    }
    throw Error(fmt::format("cannot open {}: {}", printable(job_path(job)), errno_text()));
  }
  return JobFolder(std::move(folder), job_path(job));
}

bool JobStore::is_current(const JobFolder& folder, const JobRef& job) const {
  const Fd jobs = open_folder(jobs_, false);
  return jobs &&
         same_file(jobs.get(), fmt::format("{}/{}", job.namespace_name, job.name), folder.fd());
}

bool JobStore::remove(const JobFolder& folder, const JobRef& job) const {
  const Fd jobs = open_folder(jobs_, false);
  if (!jobs) {
    return false;
  }
  const FolderLock lock(folder);
  if (!is_current(folder, job)) {
    return false;
  }
  const auto name = fmt::format("{}/{}", job.namespace_name, job.name);
  const Fd staging = open_folder(k_staging, true);
  for (int attempt = 0;; ++attempt) {
    const auto target = staging_name(attempt);
    if (renameat(jobs.get(), name.c_str(), staging.get(), target.c_str()) == 0) {
      remove_tree_at(staging.get(), target);
      return true;
    }
    if (errno != EEXIST && errno != ENOTEMPTY) {
      throw Error(fmt::format("cannot remove {}: {}", printable(job_path(job)), errno_text()));
    }
  }
}

void JobStore::for_each(std::string_view namespace_name, const Visit& visit) const {
  for_each_space(namespace_name, [&](const std::string& space_name, int folder) {
    auto listing = list_jobs(folder, read_index(space_name));
    if (!listing.better_index.empty()) {
      write_index(space_name, listing.better_index);
    }
    for (auto& job : listing.jobs) {
      visit({space_name, job.name}, std::move(job.head));
    }
  });
}

std::string JobStore::read_index(std::string_view space_name) const {
  try {
    const Fd jobs = open_folder(jobs_, false);
    return read_file_at(jobs.get(), index_name(space_name)).value_or("");
  } catch (const Error&) {
    return {}; // Nothing that could not be done without.
  }
}

/// Written in staging, where leftovers of a crash are removed. Does nothing if there is no room.
void JobStore::write_index(std::string_view space_name, std::string_view text) const {
  try {
    const Fd staging = open_folder(k_staging, true);
    const Fd jobs = open_folder(jobs_, false);
    const auto name = staging_name(0);
    write_file_at(staging.get(), name, text);
    if (renameat(staging.get(), name.c_str(), jobs.get(), index_name(space_name).c_str()) != 0) {
      unlinkat(staging.get(), name.c_str(), 0);
    }
  } catch (const Error&) {
    // The folder of another user's, or a full disk.
  }
}

void JobStore::for_each_name(std::string_view namespace_name, const VisitName& visit) const {
  for_each_space(namespace_name, [&](const std::string& space_name, int space) {
    for_each_job(space, [&](const char* name) { visit(space, {space_name, name}); });
  });
}

void JobStore::for_each_space(std::string_view namespace_name, const VisitSpace& visit) const {
  const Fd jobs = open_folder(jobs_, false);
  if (!jobs) {
    return;
  }
  const auto visit_namespace = [&](const std::string& name) {
    const Fd space(
        openat(jobs.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (space) {
      visit(name, space.get());
    }
  };
  if (namespace_name.empty()) {
    for_each_entry(jobs.get(), [&](const char* name) { visit_namespace(name); });
  } else if (is_plain_name(namespace_name)) {
    visit_namespace(std::string(namespace_name));
  }
}

} // namespace dtrain
