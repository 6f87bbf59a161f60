#include "backends/support/files/received_files.h"

#include "backends/support/os/files.h"
#include "backends/support/os/random.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>

namespace dtrain {
namespace {

constexpr mode_t k_private_folder = 0700;
constexpr mode_t k_private_file = 0600;
constexpr int k_folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

unsigned current_umask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

/// Whether a link in that folder stays in the copy, wherever its other links lead: it goes up
/// first, through folders that are real, and then only down.
bool stays_inside(const std::string& path, std::string_view target) {
  if (target.empty() || target.starts_with('/')) {
    return false;
  }
  auto depth = std::count(path.begin(), path.end(), '/');
  bool goes_down = false;
  for (std::size_t at = 0; at < target.size();) {
    const auto end = std::min(target.find('/', at), target.size());
    const auto name = target.substr(at, end - at);
    at = end + 1;
    if (name == "..") {
      if (goes_down || depth-- == 0) {
        return false;
      }
    } else if (!name.empty() && name != ".") {
      goes_down = true;
    }
  }
  return true;
}

bool is_folder_at(int folder, const std::string& name) {
  struct stat status {};
  return fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(status.st_mode);
}

bool is_there(int folder, const std::string& name) {
  struct stat status {};
  return fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

} // namespace

ReceivedFiles::ReceivedFiles(const std::string& destination, const std::string& name)
    : reader_([this](const TarEntry& entry) { begin(entry); },
              [this](std::string_view bytes) { write(bytes); }),
      umask_(current_umask()) {
  const std::filesystem::path given(destination);
  std::error_code error; // If it cannot be examined, opening its folder says why.
  const bool is_in = std::filesystem::is_directory(given, error);
  const std::filesystem::path folder = is_in                     ? given
                                       : given.has_parent_path() ? given.parent_path()
                                                                 : std::filesystem::path(".");
  name_ = is_in ? name : given.filename().string();
  path_ = is_in ? (given / name).string() : destination;
  if (name_.empty() || name_ == "." || name_ == "..") {
    throw UsageError(fmt::format("{}: no such folder: make it first", printable(destination)));
  }
  folder_ = Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) {
    throw UsageError(fmt::format("{}: cannot open the folder {}: {}", printable(destination),
                                 printable(folder.string()), errno_text()));
  }
  constexpr std::size_t k_name_bytes = 8;
  own_name_ = fmt::format(".dtrain-cp-{}", random_hex(k_name_bytes));
  if (mkdirat(folder_.get(), own_name_.c_str(), k_private_folder) != 0) {
    own_name_.clear();
    throw Error(fmt::format("{}: cannot be written: {}", printable(folder.string()), errno_text()));
  }
  own_ = Fd(openat(folder_.get(), own_name_.c_str(), k_folder_flags));
}

ReceivedFiles::~ReceivedFiles() {
  if (!own_name_.empty()) {
    remove_tree_at(folder_.get(), own_name_);
  }
}

void ReceivedFiles::fail(const std::string& path) const {
  throw Error(fmt::format("{}: cannot be written: {}",
                          printable(path.empty() ? path_ : path_ + "/" + path), errno_text()));
}

void ReceivedFiles::add(std::string_view bytes) { reader_.add(bytes); }

/// With names that tar_reader.h has checked.
Fd ReceivedFiles::open_folder(const std::string& path, bool create) const {
  Fd folder(openat(own_.get(), ".", k_folder_flags));
  for (std::size_t at = 0; folder && at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto name = path.substr(at, end - at);
    at = end + 1;
    if (create && mkdirat(folder.get(), name.c_str(), k_private_folder) != 0 && errno != EEXIST) {
      fail(path);
    }
    folder = Fd(openat(folder.get(), name.c_str(), k_folder_flags));
  }
  if (!folder) {
    fail(path);
  }
  return folder;
}

std::pair<Fd, std::string> ReceivedFiles::open_parent(const std::string& path, bool create) const {
  const auto slash = path.rfind('/');
  return slash == std::string::npos
             ? std::pair(open_folder("", create), path)
             : std::pair(open_folder(path.substr(0, slash), create), path.substr(slash + 1));
}

void ReceivedFiles::begin(const TarEntry& entry) {
  end_file();
  using Kind = TarEntry::Kind;
  if (entry.path.empty()) {
    if (entry.kind != Kind::folder || !only_.empty()) {
      throw EngineError("bad archive: an entry without a name");
    }
    is_folder_ = true;
    folder_modes_.emplace_back("", entry.mode);
    return;
  }
  if (!is_folder_) { // A single file.
    if (!only_.empty() || entry.kind != Kind::file || entry.path.find('/') != std::string::npos) {
      throw EngineError("bad archive: more than the file");
    }
    only_ = entry.path;
  }
  switch (entry.kind) {
  case Kind::folder:
    open_folder(entry.path, true);
    folder_modes_.emplace_back(entry.path, entry.mode);
    break;
  case Kind::file: {
    const auto [folder, name] = open_parent(entry.path, true);
    file_ = Fd(openat(folder.get(), name.c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, k_private_file));
    if (!file_) {
      fail(entry.path);
    }
    file_path_ = entry.path;
    file_mode_ = entry.mode;
    ++files_;
    break;
  }
  case Kind::hard_link: {
    const auto [from, from_name] = open_parent(entry.target, false);
    const auto [to, to_name] = open_parent(entry.path, true);
    if (!is_there(from.get(), from_name)) { // For a link, or a special file.
      left_out_.push_back(fmt::format("{}: a link to {}, which is not copied",
                                      printable(entry.path), printable(entry.target)));
      break;
    }
    if (linkat(from.get(), from_name.c_str(), to.get(), to_name.c_str(), 0) != 0) {
      fail(entry.path);
    }
    ++files_;
    break;
  }
  case Kind::link:
    if (stays_inside(entry.path, entry.target)) {
      links_.emplace_back(entry.path, entry.target);
    } else {
      left_out_.push_back(fmt::format("{}: a link to {}, which is not copied",
                                      printable(entry.path), printable(entry.target)));
    }
    break;
  case Kind::other:
    left_out_.push_back(fmt::format("{}: neither a file nor a folder", printable(entry.path)));
    break;
  }
}

void ReceivedFiles::write(std::string_view bytes) {
  if (!write_all(file_.get(), bytes)) {
    fail(file_path_);
  }
  bytes_ += std::ssize(bytes);
}

void ReceivedFiles::end_file() {
  if (file_) {
    // Network file systems report a full disk only here.
    if (fchmod(file_.get(), file_mode_ & ~umask_) != 0 || close(file_.release()) != 0) {
      fail(file_path_);
    }
  }
}

/// Last, so that nothing is written through one.
void ReceivedFiles::make_links() {
  for (const auto& [path, target] : links_) {
    const auto [folder, name] = open_parent(path, true);
    if (symlinkat(target.c_str(), folder.get(), name.c_str()) != 0) {
      fail(path);
    }
  }
  for (const auto& [path, mode] : folder_modes_) {
    fchmod(open_folder(path, false).get(), (mode & ~umask_) | k_private_folder);
  }
}

void ReceivedFiles::join(int from, const std::string& from_name, int to, const std::string& to_name,
                         const std::string& shown, bool checks_only) const {
  if (is_folder_at(from, from_name) && is_folder_at(to, to_name)) {
    const Fd source(openat(from, from_name.c_str(), k_folder_flags));
    const Fd target(openat(to, to_name.c_str(), k_folder_flags));
    if (!source || !target) {
      throw Error(fmt::format("{}: cannot be opened: {}", printable(shown), errno_text()));
    }
    std::vector<std::string> names;
    for_each_entry(source.get(), [&](const char* name) { names.emplace_back(name); });
    for (const auto& name : names) {
      join(source.get(), name, target.get(), name, fmt::format("{}/{}", shown, name), checks_only);
    }
    return;
  }
  if (is_there(to, to_name) && is_folder_at(from, from_name) != is_folder_at(to, to_name)) {
    throw UsageError(
        is_folder_at(to, to_name)
            ? fmt::format("{}: is a folder, and a file of that name is being copied: move it away",
                          printable(shown))
            : fmt::format(
                  "{}: is not a folder, and a folder of that name is being copied: move it away",
                  printable(shown)));
  }
  if (!checks_only && renameat(from, from_name.c_str(), to, to_name.c_str()) != 0) {
    throw Error(fmt::format("{}: cannot be written: {}", printable(shown), errno_text()));
  }
}

void ReceivedFiles::place() {
  end_file();
  if (!reader_.ended() || (!is_folder_ && only_.empty())) {
    throw EngineError("the copy was interrupted and nothing was kept; try again");
  }
  make_links();
  const int from = is_folder_ ? folder_.get() : own_.get();
  const auto& from_name = is_folder_ ? own_name_ : only_;
  for (const bool checks_only : {true, false}) {
    join(from, from_name, folder_.get(), name_, path_, checks_only);
  }
}

} // namespace dtrain
