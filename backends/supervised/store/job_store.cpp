#include "backends/supervised/store/job_store.h"

#include "backends/supervised/store/job_index.h"
#include "backends/support/os/files.h"
#include "backends/support/os/machine.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

namespace dtrain {

namespace {

constexpr const char* k_staging = "staging";
constexpr const char* k_logs = "logs";
constexpr const char* k_status_file = "status.json";
constexpr const char* k_spare_file = ".status.spare";
constexpr std::size_t k_head_bytes = 4096; ///< A record's head is below 1 KiB.
constexpr std::size_t k_few = 64;          ///< Jobs that no index is written for.
constexpr int k_settled_seconds = 1;       ///< A file's time is coarser than a change is quick.

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
  constexpr std::size_t k_fields = 6; // The host's name, behind them, may hold dots.
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

/// Names of jobs never begin with a dot.
void for_each_job(int space, const std::function<void(const char*)>& visit) {
  for_each_entry(space, [&](const char* name) {
    if (*name != '.') {
      visit(name);
    }
  });
}

std::string last_component(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool same_file(int folder, const std::string& name, int fd) {
  struct stat a {};
  struct stat b {};
  return fstatat(folder, name.c_str(), &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// A job as `list` finds it.
struct Listed {
  std::string name;
  std::optional<JobRecordHead> head = {};
  FileVersion version = {};
  std::string_view indexed = {}; ///< The head's text as the index has it …
  std::string read = {};         ///< … or as its own file had; of one that has ended.
};

/// A namespace's folder, and when it had last changed before anything in it was looked at; 0 where
/// it may be changed again and have that time still.
struct Space {
  int folder;
  std::int64_t changed;

  explicit Space(int of) : folder(of), changed(0) {
    struct stat info {};
    timespec now{};
    if (fstat(folder, &info) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
        info.st_mtim.tv_sec + k_settled_seconds < now.tv_sec) {
      changed = info.st_mtim.tv_sec * k_second + info.st_mtim.tv_nsec;
    }
  }
};

void read_head(const Space& space, const JobIndex& index, Listed& job) {
  const auto path = fmt::format("{}/{}", job.name, k_status_file);
  struct stat info {};
  if (const auto* entry = index.find(job.name)) {
    if ((space.changed != 0 && space.changed == index.folder_changed()) ||
        (fstatat(space.folder, path.c_str(), &info, 0) == 0 &&
         FileVersion::of(info) == entry->version)) {
      job.head = read_job_record_head(entry->head);
    }
    if (job.head) {
      job.version = entry->version;
      job.indexed = entry->head;
      return;
    }
  }
  const Fd file(openat(space.folder, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, k_head_bytes> block;
  const bool is_known = file && fstat(file.get(), &info) == 0;
  const auto count = is_known ? ::read(file.get(), block.data(), block.size()) : -1;
  if (count <= 0) {
    return;
  }
  const std::string_view text(block.data(), static_cast<std::size_t>(count));
  job.head = read_job_record_head(text);
  if (job.head && is_final(job.head->summary.phase)) {
    job.version = FileVersion::of(info);
    job.read = text.substr(0, job.head->bytes);
  }
}

/// Much of the time is the kernel's, for a file each: many are read by several threads.
void read_heads(const Space& space, const JobIndex& index, std::vector<Listed>& jobs) {
  constexpr std::size_t k_for_a_thread = 500;
  constexpr std::size_t k_most_threads = 4;
  const std::size_t threads = std::clamp<std::size_t>(
      jobs.size() / k_for_a_thread, 1,
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, k_most_threads));
  std::atomic<std::size_t> next = 0;
  const auto read_some = [&] {
    constexpr std::size_t k_batch = 64;
    for (auto begin = next.fetch_add(k_batch); begin < jobs.size();
         begin = next.fetch_add(k_batch)) {
      for (auto i = begin; i < std::min(begin + k_batch, jobs.size()); ++i) {
        read_head(space, index, jobs[i]);
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) {
    others.emplace_back(read_some);
  }
  read_some();
}

/// Empty where the index is as good as it was.
std::string new_index(const Space& space, const std::vector<Listed>& jobs, const JobIndex& index) {
  constexpr std::size_t k_part = 16;
  const auto count = [&](const auto& has) {
    return static_cast<std::size_t>(std::count_if(jobs.begin(), jobs.end(), has));
  };
  const auto found = count([](const Listed& job) { return !job.indexed.empty(); });
  const auto missing = count([](const Listed& job) { return !job.read.empty(); });
  const bool is_of_then = space.changed != 0 && space.changed != index.folder_changed();
  if (missing < k_few + found / k_part && index.size() < k_few + 2 * found &&
      (!is_of_then || found < k_few)) {
    return {};
  }
  auto text = index_text(space.changed);
  for (const auto& job : jobs) {
    const auto head = job.indexed.empty() ? std::string_view(job.read) : job.indexed;
    if (!head.empty()) {
      append_index_entry(text, job.name, job.version, head);
    }
  }
  return text;
}

} // namespace

std::string text_of(const JobRef& job) {
  return fmt::format("{}/{}", printable(job.namespace_name), printable(job.name));
}

std::string log_file_name(std::string_view instance, int restart) {
  return fmt::format("{}/{}.{}.log", k_logs, instance, restart);
}

std::optional<std::string> JobFolder::read(const std::string& name) const {
  return read_file_at(fd(), name);
}

void JobFolder::write(const std::string& name, std::string_view text) const {
  write_file_at(fd(), name, text);
}

std::optional<JobRecord> JobFolder::record() const {
  const auto text = read(k_status_file);
  return text ? read_job_record(*text) : std::nullopt;
}

void JobFolder::set_record(const JobRecord& record) const {
  write(k_status_file, write_job_record(record));
}

void JobFolder::reserve_last_record(std::size_t bytes) const {
  const Fd spare(openat(fd(), k_spare_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int error = spare ? posix_fallocate(spare.get(), 0, static_cast<off_t>(bytes)) : errno;
  if (error != 0) {
    throw Error(fmt::format("cannot write to {}: {}", printable(path_), errno_text(error)));
  }
}

void JobFolder::set_last_record(const JobRecord& record) const {
  try {
    set_record(record);
    unlinkat(fd(), k_spare_file, 0);
  } catch (const Error&) {
    const auto text = write_job_record(record);
    const Fd spare(openat(fd(), k_spare_file, O_WRONLY | O_CLOEXEC));
    if (!spare || !write_all(spare.get(), text) ||
        ftruncate(spare.get(), static_cast<off_t>(text.size())) != 0 ||
        renameat(fd(), k_spare_file, fd(), k_status_file) != 0) {
      throw;
    }
  }
}

Fd JobFolder::create_log(std::string_view instance, int restart) const {
  const auto name = log_file_name(instance, restart);
  Fd file(openat(fd(), name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) {
    throw Error(fmt::format("cannot write {}/{}: {}", printable(path_), name, errno_text()));
  }
  return file;
}

FolderLock::FolderLock(const JobFolder& folder) : fd_(folder.fd()) {
  if (flock(fd_, LOCK_EX) != 0) {
    throw Error(fmt::format("cannot lock {}: {}", printable(folder.path()), errno_text()));
  }
}

FolderLock::~FolderLock() { flock(fd_, LOCK_UN); }

std::string JobStore::default_root() {
  // The XDG specification has a relative path ignored.
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return fmt::format("{}/dtrain", state);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return fmt::format("{}/.local/state/dtrain", home);
  }
  const passwd* user = getpwuid(geteuid());
  if (user == nullptr || user->pw_dir == nullptr || *user->pw_dir != '/') {
    throw Error("no home folder to keep jobs in: set XDG_STATE_HOME to a folder of your own");
  }
  return fmt::format("{}/.local/state/dtrain", user->pw_dir);
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
    if (mkdirat(folder.fd(), k_logs, 0700) != 0) {
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
    const Space space(folder);
    const JobIndex index(read_index(space_name));
    std::vector<Listed> jobs;
    jobs.reserve(index.size() + k_few);
    for_each_job(folder, [&](const char* name) { jobs.push_back({name}); });
    read_heads(space, index, jobs);
    if (const auto better = new_index(space, jobs, index); !better.empty()) {
      write_index(space_name, better);
    }
    for (auto& job : jobs) {
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

/// By way of staging, where what a crash leaves is cleared. Without room for it there is none.
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
