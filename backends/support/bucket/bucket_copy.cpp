#include "backends/support/bucket/bucket_copy.h"

#include "backends/support/bucket/bucket_client.h"
#include "backends/support/os/digest.h"
#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "backends/support/user/config_folder.h"
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

constexpr const char* k_parts = ".dtrain-parts"; ///< What is on its way, in the folder itself.
constexpr std::size_t k_longest_name = 255;
constexpr auto k_copy_tick = std::chrono::milliseconds(100);

std::string problem(const fs::path& path, const std::error_code& error) {
  return fmt::format("cannot write {}: {}", printable(path.string()), error.message());
}

class Copy {
 public:
  Copy(BucketClient& client, fs::path folder, const CopySink& tell)
      : client_(client), folder_(std::move(folder)), tell_(tell) {
    std::error_code error;
    fs::create_directories(folder_, error);
    lock_ = Fd(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock_) {
      throw Error(fmt::format("cannot make the folder {}: {}", printable(folder_.string()),
                              error ? error.message() : errno_text()));
    }
    // Another copy into this folder goes first.
    while (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      std::this_thread::sleep_for(k_copy_tick);
      report();
    }
    remove_tree_at(lock_.get(), k_parts);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { remove_tree_at(lock_.get(), k_parts); }

  /// Asks what there is. False where that is nothing.
  bool list() {
    std::string token;
    do {
      const BucketPage page =
          client_.list(token, BucketClient::k_most_objects, [this] { report(); });
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
    return !objects_.empty();
  }

  void remove_others() {
    std::set<fs::path> folders;
    for (const auto& [path, object] : objects_) {
      for (fs::path above = fs::path(path).parent_path(); !above.empty();
           above = above.parent_path()) {
        folders.insert(above);
      }
    }
    std::error_code error;
    for (auto at = fs::recursive_directory_iterator(folder_, error);
         !error && at != fs::recursive_directory_iterator();) {
      const fs::path path = at->path().lexically_relative(folder_);
      const bool is_folder = at->is_directory(error) && !at->is_symlink(error);
      const bool stays = is_folder ? folders.contains(path) : objects_.contains(path.string());
      if (!stays && is_folder) {
        at.disable_recursion_pending();
      }
      const fs::path other = stays ? fs::path() : at->path();
      at.increment(error);
      if (!other.empty()) {
        fs::remove_all(other, error);
      }
    }
    if (error) {
      throw Error(problem(folder_, error));
    }
  }

  CopyProgress bring() {
    for (const auto& [path, object] : objects_) {
      struct stat info {};
      if (lstat((folder_ / path).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
          info.st_size == object.size && info.st_mtim.tv_sec == object.modified) {
        ++progress_.files;
        progress_.bytes += object.size;
      } else {
        missing_.emplace_back(path, &object);
      }
    }
    require_room(progress_.bytes_total - progress_.bytes);
    if (!missing_.empty() && mkdirat(lock_.get(), k_parts, 0700) != 0) {
      throw Error(
          fmt::format("cannot write into {}: {}", printable(folder_.string()), errno_text()));
    }
    client_.fetch([this](BucketClient::Fetch& fetch) { return next(fetch); },
                  [this](const BucketClient::Fetch& fetch) { place(fetch); },
                  [this](std::int64_t bytes) {
                    progress_.bytes += bytes;
                    progress_.new_bytes += bytes;
                    report();
                  });
    return progress_;
  }

 private:
  void require_room(std::int64_t needed) const {
    struct statvfs disk {};
    if (fstatvfs(lock_.get(), &disk) != 0) {
      return;
    }
    const auto room = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    if (needed > room) {
      throw Error(fmt::format("{}: {} are to be copied, {} has room for {}",
                              printable(client_.bucket().shown()), bytes_text(needed),
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
    ++progress_.files;
    ++progress_.new_files;
  }

  void report() const {
    if (tell_) {
      tell_(progress_);
    }
  }

  BucketClient& client_;
  fs::path folder_;
  const CopySink& tell_;
  Fd lock_; ///< The folder, held against other copies.
  CopyProgress progress_;
  std::map<std::string, BucketObject> objects_; ///< By path.
  std::vector<std::pair<std::string, const BucketObject*>> missing_;
  std::size_t begun_ = 0;                               ///< Of the missing ones.
  std::map<int, std::pair<std::string, Fd>> under_way_; ///< Paths by file descriptor.
};

} // namespace

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
    throw Error(fmt::format("{}: its object '{}' cannot be a file", printable(bucket.shown()),
                            printable(key)));
  }
  return path;
}

namespace {

[[noreturn]] void throw_empty(const Bucket& bucket) {
  throw UsageError(fmt::format("{}: there is nothing in it", printable(bucket.shown())));
}

} // namespace

void require_bucket(const Bucket& bucket, const BucketKeys& keys) {
  if (BucketClient(bucket, keys).list("", 1, [] {}).objects.empty()) {
    throw_empty(bucket);
  }
}

CopyProgress copy_bucket(const Bucket& bucket, const BucketKeys& keys, const std::string& folder,
                         Others others, const CopySink& tell) {
  BucketClient client(bucket, keys);
  Copy copy(client, folder, tell);
  if (!copy.list()) {
    throw_empty(bucket);
  }
  if (others == Others::remove) {
    copy.remove_others();
  }
  return copy.bring();
}

std::string bucket_folder(const Bucket& bucket) {
  constexpr std::size_t k_digits = 16;
  const std::string digest = digest_of(bucket.url() + "\n" + bucket.prefix).substr(0, k_digits);
  return (cache_folder() / "data" / fmt::format("{}-{}", bucket.name, digest)).string();
}

} // namespace dtrain
