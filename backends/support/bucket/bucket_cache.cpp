#include "backends/support/bucket/bucket_cache.h"

#include "backends/support/os/digest.h"
#include "backends/support/os/files.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <thread>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_current = "current";
constexpr const char* k_next = "next";
constexpr const char* k_lock = "lock";
constexpr std::string_view k_lock_end = ".lock";
constexpr const char* k_removed = ".gone"; ///< Begins the name of a folder that is being removed.
constexpr auto k_lock_tick = std::chrono::milliseconds(100);

fs::path copies_folder() { return cache_folder() / "data"; }

[[noreturn]] void fail(const fs::path& path) {
  throw Error(fmt::format("cannot write {}: {}", printable(path.string()), errno_text()));
}

Fd open_lock(const fs::path& path) {
  return Fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
}

fs::path lock_of(const fs::path& folder, const std::string& version) {
  return folder / (version + std::string(k_lock_end));
}

/// Held as `kind` says, or empty.
Fd try_lock(const fs::path& path, int kind) {
  Fd lock = open_lock(path);
  return lock && flock(lock.get(), kind | LOCK_NB) == 0 ? std::move(lock) : Fd();
}

/// Waits for processes that make or remove a copy there.
Fd lock_folder(const fs::path& folder, const BucketCopy& copy) {
  while (true) {
    open_private_folder(folder.string(), true);
    Fd lock = open_lock(folder / k_lock);
    if (!lock) {
      fail(folder / k_lock);
    }
    while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      std::this_thread::sleep_for(k_lock_tick);
      copy.report();
    }
    struct stat held {};
    struct stat named {};
    if (fstat(lock.get(), &held) == 0 && stat((folder / k_lock).c_str(), &named) == 0 &&
        held.st_ino == named.st_ino) {
      return lock;
    } // Otherwise the folder was removed meanwhile.
  }
}

/// "7"; empty: there is none.
std::string current_version(const fs::path& folder) {
  std::error_code error;
  const auto version = fs::read_symlink(folder / k_current, error).string();
  return !error && fs::is_directory(folder / version, error) ? version : "";
}

/// 0: no version's.
std::int64_t number_of(const std::string& name) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  return names;
}

void remove_in(const fs::path& folder, const std::string& name) {
  if (const Fd parent(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); parent) {
    remove_tree_at(parent.get(), name);
  }
}

/// Makes the folder `next` begin as the current version does.
void begin_next(const fs::path& folder, const std::string& current, BucketCopy& copy) {
  const fs::path next = folder / k_next;
  std::error_code error;
  if (!current.empty() && !fs::exists(next, error)) {
    const Fd unused = try_lock(lock_of(folder, current), LOCK_EX);
    if (unused && rename((folder / current).c_str(), next.c_str()) == 0) {
      return;
    }
  }
  if (fs::create_directory(next, error); error) {
    throw Error(fmt::format("cannot write {}: {}", printable(next.string()), error.message()));
  }
  if (!current.empty()) {
    copy.link((folder / current).string(), next.string());
  }
}

/// Gives what `next` has become a number of its own.
std::string finish_next(const fs::path& folder) {
  std::int64_t last = 0;
  for (const std::string& name : names_in(folder)) {
    last = std::max(last, number_of(name));
  }
  std::string version = std::to_string(last + 1);
  const fs::path link = folder / ".current";
  unlink(link.c_str());
  if (rename((folder / k_next).c_str(), (folder / version).c_str()) != 0 ||
      symlink(version.c_str(), link.c_str()) != 0 ||
      rename(link.c_str(), (folder / k_current).c_str()) != 0) {
    fail(folder / k_current);
  }
  return version;
}

/// Removes the versions that no job has, and what else does not belong there.
void tidy(const fs::path& folder, const std::string& kept) {
  for (const std::string& name : names_in(folder)) {
    if (name == k_current || name == k_lock || name == k_next || name == kept ||
        name.ends_with(k_lock_end)) {
      continue;
    }
    const bool is_version = number_of(name) != 0;
    const Fd unused = is_version ? try_lock(lock_of(folder, name), LOCK_EX) : Fd();
    if (!is_version || unused) {
      remove_in(folder, name);
    }
    if (unused) {
      unlink(lock_of(folder, name).c_str());
    }
  }
}

} // namespace

std::string bucket_folder(const Bucket& bucket) {
  constexpr std::size_t k_digits = 16;
  const std::string digest = digest_of(bucket.url() + "\n" + bucket.prefix).substr(0, k_digits);
  return (copies_folder() / fmt::format("{}-{}", bucket.name, digest) / k_current).string();
}

BroughtBucket bring_bucket(const Bucket& bucket, const BucketKeys& keys, const CopySink& tell) {
  const fs::path folder = fs::path(bucket_folder(bucket)).parent_path();
  open_private_folder(folder.parent_path().string(), true);
  BucketCopy copy(bucket, keys, tell);
  const Fd lock = lock_folder(folder, copy);
  copy.list();
  std::string version = current_version(folder);
  BroughtBucket brought;
  if (!version.empty() && copy.is_in((folder / version).string())) {
    brought.progress = copy.progress();
  } else {
    begin_next(folder, version, copy);
    brought.progress = copy.bring((folder / k_next).string(), Others::remove);
    version = finish_next(folder);
  }
  brought.use = try_lock(lock_of(folder, version), LOCK_SH);
  tidy(folder, version);
  futimens(lock.get(), nullptr);
  drop_buckets(k_unused, false);
  return brought;
}

std::vector<std::string> drop_buckets(std::chrono::seconds unused, bool dry_run) {
  const fs::path copies = copies_folder();
  const auto limit =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - unused.count();
  std::vector<std::string> dropped;
  for (const std::string& name : names_in(copies)) {
    const fs::path folder = copies / name;
    if (name.starts_with(k_removed)) { // Left by a killed process, or in use by a running one.
      remove_in(copies, name);
      continue;
    }
    struct stat used {};
    if (stat((folder / k_lock).c_str(), &used) != 0 && stat(folder.c_str(), &used) != 0) {
      continue;
    }
    std::vector<Fd> locks;
    locks.push_back(used.st_mtim.tv_sec <= limit ? try_lock(folder / k_lock, LOCK_EX) : Fd());
    for (const std::string& version : names_in(folder)) {
      if (locks.back() && number_of(version) != 0) {
        locks.push_back(try_lock(lock_of(folder, version), LOCK_EX));
      }
    }
    if (!locks.back()) {
      continue;
    }
    const std::string gone = fmt::format("{}-{}-{}", k_removed, getpid(), name);
    if (dry_run) {
      dropped.push_back(folder.string());
    } else if (rename(folder.c_str(), (copies / gone).c_str()) == 0) {
      remove_in(copies, gone);
      dropped.push_back(folder.string());
    }
  }
  return dropped;
}

BucketUse::~BucketUse() {
  for (const auto& [path, held] : held_) { // Used until now.
    utimensat(AT_FDCWD, (fs::path(path).parent_path() / k_lock).c_str(), nullptr, 0);
  }
}

std::string BucketUse::hold(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  if (fs::path(path).filename() != k_current ||
      !folder.parent_path().string().ends_with("/dtrain/data")) {
    return path; // From whichever cache: the job may be resumed in another environment.
  }
  if (const auto found = held_.find(path); found != held_.end()) {
    return found->second.folder;
  }
  // For the process that is making a copy: at first without waiting, as it may take hours.
  Fd waited;
  while (true) {
    const std::string version = current_version(folder);
    Fd lock = version.empty() ? Fd() : try_lock(lock_of(folder, version), LOCK_SH);
    if (lock && current_version(folder) == version) {
      std::string own = (folder / version).string();
      held_[path] = {own, std::move(lock)};
      return own;
    }
    if (waited) {
      throw Error(
          fmt::format("the copy of its data, {}, is gone: submit the job again", printable(path)));
    }
    waited = Fd(open((folder / k_lock).c_str(), O_RDONLY | O_CLOEXEC));
    if (!waited || flock(waited.get(), LOCK_SH) != 0) {
      throw Error(
          fmt::format("the copy of its data, {}, is gone: submit the job again", printable(path)));
    }
  }
}

} // namespace dtrain
