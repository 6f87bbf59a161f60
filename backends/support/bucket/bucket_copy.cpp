#include "backends/support/bucket/bucket_copy.h"

#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_parts = ".dtrain-parts"; ///< Unfinished files, in the folder itself.
constexpr std::size_t k_longest_name = 255;
constexpr auto k_copy_tick = std::chrono::milliseconds(100);

std::string problem(const fs::path& path, const std::error_code& error) {
  return fmt::format("cannot write {}: {}", printable(path.string()), error.message());
}

/// True where the file is as the bucket has it.
bool is_same(const fs::path& path, const BucketObject& object) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == object.size &&
         info.st_mtim.tv_sec == object.modified;
}

/// Entries of the folder without an object; a folder with only such entries is listed by its path
/// alone.
std::vector<fs::path> others_in(const fs::path& folder,
                                const std::map<std::string, BucketObject>& objects) {
  std::set<fs::path> folders;
  for (const auto& [path, object] : objects) {
    for (fs::path above = fs::path(path).parent_path(); !above.empty();
         above = above.parent_path()) {
      folders.insert(above);
    }
  }
  std::vector<fs::path> others;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::path path = at->path().lexically_relative(folder);
    const bool is_folder = at->is_directory(error) && !at->is_symlink(error);
    if (is_folder ? folders.contains(path) : objects.contains(path.string())) {
      continue;
    }
    others.push_back(at->path());
    if (is_folder) {
      at.disable_recursion_pending();
    }
  }
  if (error) {
    throw Error(problem(folder, error));
  }
  return others;
}

} // namespace

/// Objects on their way into a folder.
class BucketCopy::Delivery {
 public:
  Delivery(BucketCopy& copy, fs::path folder)
      : copy_(copy), folder_(std::move(folder)),
        here_(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    remove_tree_at(here_.get(), k_parts);
  }
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  ~Delivery() { remove_tree_at(here_.get(), k_parts); }

  void run() {
    auto& progress = copy_.progress_;
    progress.files = 0;
    progress.bytes = 0;
    for (const auto& [path, object] : copy_.objects_) {
      if (is_same(folder_ / path, object)) {
        ++progress.files;
        progress.bytes += object.size;
      } else {
        missing_.emplace_back(path, &object);
      }
    }
    require_room(progress.bytes_total - progress.bytes);
    if (!missing_.empty() && mkdirat(here_.get(), k_parts, 0700) != 0) {
      throw Error(
          fmt::format("cannot write into {}: {}", printable(folder_.string()), errno_text()));
    }
    copy_.client_.fetch([this](BucketClient::Fetch& fetch) { return next(fetch); },
                        [this](const BucketClient::Fetch& fetch) { place(fetch); },
                        [this](std::int64_t bytes) {
                          copy_.progress_.bytes += bytes;
                          copy_.progress_.new_bytes += bytes;
                          copy_.report();
                        });
  }

 private:
  void require_room(std::int64_t needed) const {
    struct statvfs disk {};
    if (fstatvfs(here_.get(), &disk) != 0) {
      return;
    }
    const auto room = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    if (needed > room) {
      throw Error(fmt::format("{}: {} to copy, but {} has room for only {}",
                              printable(copy_.client_.bucket().shown()), bytes_text(needed),
                              printable(folder_.string()), bytes_text(room)));
    }
  }

  fs::path part(const BucketClient::Fetch& fetch) const {
    return folder_ / k_parts / std::to_string(fetch.file);
  }

  bool next(BucketClient::Fetch& fetch) {
    if (begun_ == missing_.size()) {
      return false;
    }
    const auto& [path, object] = missing_[begun_++];
    std::error_code error;
    fs::create_directories((folder_ / path).parent_path(), error);
    if (error) {
      throw Error(problem((folder_ / path).parent_path(), error));
    }
    const fs::path fresh = folder_ / k_parts / "new";
    Fd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    fetch = {object, file.get()};
    if (!file || rename(fresh.c_str(), part(fetch).c_str()) != 0) {
      throw Error(fmt::format("cannot write {}: {}", printable(fresh.string()), errno_text()));
    }
    under_way_[fetch.file] = {path, std::move(file)};
    return true;
  }

  void place(const BucketClient::Fetch& fetch) {
    const auto [path, file] = std::move(under_way_.at(fetch.file));
    under_way_.erase(fetch.file);
    const timespec time{.tv_sec = fetch.object->modified, .tv_nsec = 0};
    const timespec times[] = {time, time};
    if (futimens(file.get(), times) != 0 ||
        rename(part(fetch).c_str(), (folder_ / path).c_str()) != 0) {
      throw Error(
          fmt::format("cannot write {}: {}", printable((folder_ / path).string()), errno_text()));
    }
    ++copy_.progress_.files;
    ++copy_.progress_.new_files;
  }

  BucketCopy& copy_;
  fs::path folder_;
  Fd here_;
  std::vector<std::pair<std::string, const BucketObject*>> missing_;
  std::size_t begun_ = 0;                               ///< Index in the missing ones.
  std::map<int, std::pair<std::string, Fd>> under_way_; ///< Paths by file descriptor.
};

std::string path_of_key(const Bucket& bucket, const std::string& key) {
  const std::string folder = bucket.prefix + (bucket.prefix.empty() ? "" : "/");
  std::string path = key.substr(std::min(folder.size(), key.size()));
  if (path.empty() || path.ends_with('/')) {
    return "";
  }
  bool is_path = key.starts_with(folder);
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    is_path = is_path && !name.empty() && name != "." && name != ".." && name != k_parts &&
              name.size() <= k_longest_name;
    begin = end + 1;
  }
  if (!is_path) {
    throw Error(fmt::format("{}: its object '{}' cannot be stored as a file",
                            printable(bucket.shown()), printable(key)));
  }
  return path;
}

namespace {

[[noreturn]] void throw_empty(const Bucket& bucket) {
  throw UsageError(fmt::format("{}: no objects found", printable(bucket.shown())));
}

} // namespace

void require_bucket(const Bucket& bucket, const BucketKeys& keys) {
  if (BucketClient(bucket, keys).list("", 1, [] {}).objects.empty()) {
    throw_empty(bucket);
  }
}

BucketCopy::BucketCopy(const Bucket& bucket, const BucketKeys& keys, const CopySink& tell)
    : client_(bucket, keys), tell_(tell) {}

void BucketCopy::report() const {
  if (tell_) {
    tell_(progress_);
  }
}

void BucketCopy::list() {
  std::string token;
  do {
    const BucketPage page = client_.list(token, BucketClient::k_most_objects, [this] { report(); });
    token = page.next;
    for (const BucketObject& object : page.objects) {
      const std::string path = path_of_key(client_.bucket(), object.key);
      if (path.empty()) {
        continue;
      }
      ++progress_.files_total;
      progress_.bytes_total += object.size;
      objects_.emplace(path, object);
    }
    report();
  } while (!token.empty());
  if (objects_.empty()) {
    throw_empty(client_.bucket());
  }
}

bool BucketCopy::is_in(const std::string& folder) {
  const bool all = std::all_of(objects_.begin(), objects_.end(), [&](const auto& each) {
    return is_same(fs::path(folder) / each.first, each.second);
  });
  if (!all || !others_in(folder, objects_).empty()) {
    return false;
  }
  progress_.files = progress_.files_total;
  progress_.bytes = progress_.bytes_total;
  return true;
}

void BucketCopy::link(const std::string& from, const std::string& to) const {
  for (const auto& [path, object] : objects_) {
    const fs::path source = fs::path(from) / path;
    const fs::path target = fs::path(to) / path;
    if (is_same(source, object) && !is_same(target, object)) {
      std::error_code no_matter;
      fs::create_directories(target.parent_path(), no_matter);
      fs::remove(target, no_matter);
      fs::create_hard_link(source, target, no_matter);
    }
  }
}

CopyProgress BucketCopy::bring(const std::string& folder, Others others) {
  if (others == Others::remove) {
    for (const auto& other : others_in(folder, objects_)) {
      std::error_code error;
      if (fs::remove_all(other, error); error) {
        throw Error(problem(other, error));
      }
    }
  }
  Delivery(*this, folder).run();
  return progress_;
}

CopyProgress copy_bucket(const Bucket& bucket, const BucketKeys& keys, const std::string& folder,
                         Others others, const CopySink& tell) {
  BucketCopy copy(bucket, keys, tell);
  std::error_code error;
  fs::create_directories(folder, error);
  const Fd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) {
    throw Error(fmt::format("cannot make the folder {}: {}", printable(folder),
                            error ? error.message() : errno_text()));
  }
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::this_thread::sleep_for(k_copy_tick);
    copy.report();
  }
  copy.list();
  return copy.bring(folder, others);
}

} // namespace dtrain
