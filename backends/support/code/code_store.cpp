#include "backends/support/code/code_store.h"

#include "backends/support/code/code_manifest.h"
#include "backends/support/os/digest.h"
#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace dtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_copy_block = 1U << 18U;
constexpr std::size_t k_prefix = 2; ///< Characters of a digest that name its folder.
constexpr mode_t k_object_mode = 0400;
constexpr mode_t k_code_folder_mode = 0755;
constexpr auto k_copy_interval = std::chrono::milliseconds(100);
constexpr unsigned k_most_threads = 8;        ///< More wait for one another in the file system.
constexpr const char* k_source = ".source";   ///< Ends the names of files with a manifest's folder.
constexpr const char* k_partial = "partial."; ///< Begins the names of objects not yet whole.

std::string object_name(const std::string& digest) {
  return digest.substr(0, k_prefix) + "/" + digest.substr(k_prefix);
}

class Store {
 public:
  Store()
      : path_((cache_folder() / "code").string()), root_(open_private_folder(path_, true)),
        objects_(open_private_folder_at(root_.get(), "objects", path_ + "/objects", true)),
        manifests_(open_private_folder_at(root_.get(), "manifests", path_ + "/manifests", true)),
        lock_(openat(root_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (!lock_ || flock(lock_.get(), LOCK_EX) != 0) {
      throw Error(fmt::format("cannot lock {}: {}", printable(path_), errno_text()));
    }
    for_each_entry(objects_.get(), [&](const char* name) {
      if (std::string_view(name).starts_with(k_partial)) {
        unlinkat(objects_.get(), name, 0); // A crash left it: we hold the lock.
      }
    });
  }

  CodeManifest manifest(const std::string& source) const { return read_kept(digest_of(source)); }

  void keep(const std::string& source, const CodeManifest& before, const CodeManifest& now) const {
    const std::string name = digest_of(source);
    write_file_at(manifests_.get(), name + k_source, source);
    write_file_at(manifests_.get(), name, write_manifest(now));
    forget(before, now);
  }

  /// Forgets folders that are no more, and what only they held.
  void forget_deleted() const {
    std::vector<std::string> deleted; // Names of manifests.
    for_each_entry(manifests_.get(), [&](const char* name) {
      const auto source = std::string_view(name).ends_with(k_source)
                              ? read_file_at(manifests_.get(), name)
                              : std::nullopt;
      struct stat info {};
      if (source && lstat(source->c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        deleted.emplace_back(name, std::strlen(name) - std::strlen(k_source));
      }
    });
    for (const auto& name : deleted) {
      const CodeManifest before = read_kept(name);
      unlinkat(manifests_.get(), name.c_str(), 0);
      unlinkat(manifests_.get(), (name + k_source).c_str(), 0);
      forget(before, {});
    }
  }

  /// Open to read; empty where the store has it not, or not whole.
  Fd open_object(const CodeFile& file) const {
    Fd object(openat(objects_.get(), object_name(file.digest).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (object && (fstat(object.get(), &info) != 0 || info.st_size != file.size)) {
      object.reset();
    }
    return object;
  }

  /// Copies what `from` holds into the store; sets digest and size as they were read.
  Fd add(int from, CodeFile& file, std::size_t worker) const {
    const std::string partial = fmt::format("{}{}", k_partial, worker);
    const Fd to(openat(objects_.get(), partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                       k_object_mode | S_IWUSR));
    Digest digest;
    std::vector<char> block(
        std::min<std::size_t>(k_copy_block, static_cast<std::size_t>(file.size) + 1));
    std::int64_t size = 0;
    ssize_t count = 0;
    while (to && (count = read(from, block.data(), block.size())) > 0) {
      const std::string_view text(block.data(), static_cast<std::size_t>(count));
      digest.add(text);
      size += count;
      if (!write_all(to.get(), text)) {
        break;
      }
    }
    if (!to || count != 0 || fchmod(to.get(), k_object_mode) != 0) {
      const auto why = errno_text();
      unlinkat(objects_.get(), partial.c_str(), 0);
      throw Error(
          fmt::format("cannot copy {} to {}: {}", printable(file.path), printable(path_), why));
    }
    file.digest = digest.hex();
    file.size = size;
    const std::string name = object_name(file.digest);
    mkdirat(objects_.get(), name.substr(0, k_prefix).c_str(), 0700);
    if (renameat(objects_.get(), partial.c_str(), objects_.get(), name.c_str()) != 0) {
      throw Error(fmt::format("cannot keep {} in {}: {}", printable(file.path), printable(path_),
                              errno_text()));
    }
    return open_object(file);
  }

 private:
  CodeManifest read_kept(const std::string& name) const {
    const auto text = read_file_at(manifests_.get(), name);
    auto manifest = text ? read_manifest(*text) : std::nullopt;
    return manifest ? std::move(*manifest) : CodeManifest();
  }

  /// Removes what `before` had and nothing has now.
  void forget(const CodeManifest& before, const CodeManifest& now) const {
    std::unordered_set<std::string> gone;
    for (const CodeFile& file : before.files) {
      gone.insert(file.digest);
    }
    const auto keep_of = [&](const CodeManifest& manifest) {
      for (const CodeFile& file : manifest.files) {
        gone.erase(file.digest);
      }
    };
    keep_of(now);
    if (gone.empty()) {
      return;
    }
    for_each_entry(manifests_.get(), [&](const char* name) {
      const auto text = read_file_at(manifests_.get(), name);
      if (const auto other = text ? read_manifest(*text) : std::nullopt) {
        keep_of(*other);
      }
    });
    for (const auto& digest : gone) {
      unlinkat(objects_.get(), object_name(digest).c_str(), 0);
    }
  }

  std::string path_;
  Fd root_;
  Fd objects_;
  Fd manifests_;
  Fd lock_;
};

/// Copies all of `from` to `to`. Returns false with errno set.
bool copy_all(int from, int to, std::int64_t size) {
  std::int64_t done = 0;
  while (done < size) {
    const ssize_t count =
        copy_file_range(from, nullptr, to, nullptr, static_cast<std::size_t>(size - done), 0);
    if (count <= 0) {
      break;
    }
    done += count;
  }
  if (done == size) {
    return true;
  }
  if (done > 0) {
    errno = errno == 0 ? EIO : errno;
    return false;
  }
  std::vector<char> block(k_copy_block); // Other kinds of file systems on the two sides.
  ssize_t count = 0;
  while ((count = read(from, block.data(), block.size())) > 0) {
    if (!write_all(to, {block.data(), static_cast<std::size_t>(count)})) {
      return false;
    }
  }
  return count == 0;
}

/// Brings the files of one manifest, some threads at once.
class Work {
 public:
  Work(const Store& store, std::string source, const std::string& target, CodeManifest& manifest)
      : store_(store), source_(std::move(source)), manifest_(manifest),
        from_(open(source_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        to_(open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!from_ || !to_) {
      throw Error(
          fmt::format("cannot open {}: {}", printable(from_ ? target : source_), errno_text()));
    }
    umask(mask_);
    for (const CodeFile& file : manifest.files) {
      total_.bytes_total += file.size;
    }
    total_.files_total = static_cast<std::int64_t>(manifest.files.size());
  }

  CopyProgress run(const CopySink& tell) {
    make_frame();
    const auto enough = static_cast<unsigned>(manifest_.files.size() / 64 + 1);
    const unsigned count =
        std::min({std::max(std::thread::hardware_concurrency(), 1U), enough, k_most_threads});
    std::vector<std::jthread> threads;
    threads.reserve(count);
    working_ = count;
    for (unsigned i = 0; i < count; ++i) {
      threads.emplace_back([this, i] { work(i); });
    }
    try {
      watch(tell);
    } catch (...) {
      stop_ = true;
      throw; // The threads end before this does.
    }
    threads.clear();
    if (error_) {
      std::rethrow_exception(error_);
    }
    return progress();
  }

 private:
  void make_frame() const {
    for (const auto& folder : manifest_.folders) {
      if (mkdirat(to_.get(), folder.c_str(), k_code_folder_mode) != 0) {
        fail("make", folder);
      }
    }
    for (const auto& link : manifest_.links) {
      if (symlinkat(link.target.c_str(), to_.get(), link.path.c_str()) != 0) {
        fail("make", link.path);
      }
    }
  }

  [[noreturn]] void fail(std::string_view verb, const std::string& path) const {
    throw Error(fmt::format("--sync-source={}: cannot {} {}: {}", printable(source_), verb,
                            printable(path), errno_text()));
  }

  void work(std::size_t worker) {
    try {
      for (std::size_t i = 0; !stop_ && (i = next_++) < manifest_.files.size();) {
        bring(manifest_.files[i], worker);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = error_ ? error_ : std::current_exception();
      stop_ = true;
    }
    const std::scoped_lock lock(mutex_);
    --working_;
    ended_.notify_all();
  }

  void bring(CodeFile& file, std::size_t worker) {
    Fd object = file.digest.empty() ? Fd() : store_.open_object(file);
    if (!object) {
      const Fd from(openat(from_.get(), file.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      if (!from) {
        fail("read", file.path);
      }
      object = store_.add(from.get(), file, worker);
      ++new_files_;
      new_bytes_ += file.size;
    }
    const Fd to(openat(to_.get(), file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                       file.mode | S_IWUSR));
    if (!object || !to || !copy(object.get(), to.get(), file.size) ||
        ((file.mode & mask_) != 0 && fchmod(to.get(), file.mode | S_IWUSR) != 0)) {
      fail("copy", file.path);
    }
    ++files_;
    bytes_ += file.size;
  }

  /// Shares blocks if the file system can.
  bool copy(int from, int to, std::int64_t size) {
    if (can_share_ && size > 0) {
      if (ioctl(to, FICLONE, from) == 0) {
        return true;
      }
      can_share_ = false;
    }
    return copy_all(from, to, size);
  }

  void watch(const CopySink& tell) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, k_copy_interval, [&] { return working_ == 0; })) {
      lock.unlock();
      if (tell) {
        tell(progress());
      }
      lock.lock();
    }
  }

  CopyProgress progress() const {
    CopyProgress now = total_;
    now.files = files_;
    now.bytes = bytes_;
    now.new_files = new_files_;
    now.new_bytes = new_bytes_;
    return now;
  }

  const Store& store_;
  std::string source_;
  CodeManifest& manifest_;
  Fd from_;
  Fd to_;
  CopyProgress total_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> can_share_ = true;
  mode_t mask_ = umask(0); ///< Put back at once.
  std::atomic<std::int64_t> files_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> new_files_ = 0;
  std::atomic<std::int64_t> new_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned working_ = 0;
  std::exception_ptr error_;
};

} // namespace

CopyProgress bring_folder(const std::string& source, const std::string& target,
                          const CopySink& tell) {
  const Store store;
  CodeManifest now = scan_code(source);
  const std::string place = fs::absolute(source).lexically_normal().string();
  const CodeManifest before = store.manifest(place);
  reuse_digests(before, now);
  const CopyProgress done = Work(store, source, target, now).run(tell);
  store.keep(place, before, now);
  store.forget_deleted();
  return done;
}

} // namespace dtrain
