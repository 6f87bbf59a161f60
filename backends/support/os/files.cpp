#include "backends/support/os/files.h"

#include "submit/errors.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace dtrain {

namespace {

constexpr mode_t k_folder_mode = 0700;
constexpr mode_t k_file_mode = 0600;
constexpr int k_open_folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

void require_private(int folder, const std::string& path) {
  struct stat info {};
  if (fstat(folder, &info) != 0) {
    throw Error(fmt::format("cannot look at {}: {}", printable(path), errno_text()));
  }
  if (info.st_uid != geteuid()) {
    throw Error(fmt::format("{} belongs to user {}, not to you (user {}): set XDG_STATE_HOME to a "
                            "folder of your own",
                            printable(path), info.st_uid, geteuid()));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(fmt::format("{} is writable by other users: run chmod go-w on it, or set "
                            "XDG_STATE_HOME to a folder of your own",
                            printable(path)));
  }
}

} // namespace

std::string errno_text() { return errno_text(errno); }
std::string errno_text(int error) { return std::strerror(error); }

void make_parents(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const auto parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), k_folder_mode) == 0 || errno == EEXIST) {
      continue;
    }
    const int error = errno;
    if (struct stat info{}; stat(parent.c_str(), &info) != 0) {
      throw Error(fmt::format("cannot make folder {}: {}: set XDG_STATE_HOME to a folder of your "
                              "own",
                              printable(parent), errno_text(error)));
    }
  }
}

Fd open_private_folder(const std::string& path, bool create) {
  Fd folder(open(path.c_str(), k_open_folder));
  if (!folder && errno == ENOENT && create) {
    make_parents(path);
  }
  if (folder) {
    require_private(folder.get(), path);
    return folder;
  }
  return open_private_folder_at(AT_FDCWD, path, path, create);
}

Fd open_private_folder_at(int parent, const std::string& name, const std::string& path,
                          bool create) {
  Fd folder(openat(parent, name.c_str(), k_open_folder));
  if (!folder && errno == ENOENT) {
    if (!create) {
      return {};
    }
    if (mkdirat(parent, name.c_str(), k_folder_mode) != 0 && errno != EEXIST) {
      throw Error(fmt::format("cannot make folder {}: {}", printable(path), errno_text()));
    }
    folder = Fd(openat(parent, name.c_str(), k_open_folder));
  }
  if (!folder) {
    if (errno == ELOOP || errno == ENOTDIR) {
      throw Error(fmt::format("{} is not a folder but a link or a file: move it away, or set "
                              "XDG_STATE_HOME to a folder of your own",
                              printable(path)));
    }
    throw Error(fmt::format("cannot open folder {}: {}", printable(path), errno_text()));
  }
  require_private(folder.get(), path);
  return folder;
}

std::optional<std::string> read_file_at(int folder, const std::string& name) {
  const Fd file(openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) {
      return std::nullopt;
    }
    throw Error(fmt::format("cannot open {}: {}", printable(name), errno_text()));
  }
  std::string text;
  constexpr std::size_t k_block = 16384;
  constexpr std::size_t k_most_at_once = std::size_t{64} << 20U;
  struct stat info {};
  const auto known = fstat(file.get(), &info) == 0 ? info.st_size : 0; // 0 of /proc's files.
  auto block = std::clamp(static_cast<std::size_t>(known) + 1, k_block, k_most_at_once);
  while (true) {
    const auto size = text.size();
    text.resize(size + block);
    const auto count = read(file.get(), text.data() + size, block);
    if (count < 0 && errno != EINTR) {
      throw Error(fmt::format("cannot read {}: {}", printable(name), errno_text()));
    }
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0 || (known > 0 && count > 0 && static_cast<std::size_t>(count) < block)) {
      return text;
    }
    block = k_block;
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto count = write(fd, text.data(), text.size());
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void write_file_at(int folder, const std::string& name, std::string_view text) {
  // The process's id keeps two writers apart; a job has only one at a time.
  const auto temporary = fmt::format(".{}.{}", name, getpid());
  const auto fail = [&] {
    const auto reason = errno_text();
    unlinkat(folder, temporary.c_str(), 0);
    throw Error(fmt::format("cannot write {}: {}", printable(name), reason));
  };
  Fd file(openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                 k_file_mode));
  if (!file || !write_all(file.get(), text)) {
    fail();
  }
  // Network file systems report a full disk only here.
  if (close(file.release()) != 0 ||
      renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) {
    fail();
  }
}

void for_each_entry(int folder, const std::function<void(const char*)>& visit) {
  // A second description, so that the caller's read position stays its own.
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(copy < 0 ? nullptr : fdopendir(copy), closedir);
  if (!stream) {
    return;
  }
  while (const dirent* entry = readdir(stream.get())) {
    const char* name = entry->d_name;
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) {
      visit(name);
    }
  }
}

bool remove_tree_at(int folder, const std::string& name) {
  if (unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) {
    return true;
  }
  if (errno != EISDIR && errno != EPERM) {
    return false;
  }
  {
    const Fd child(openat(folder, name.c_str(), k_open_folder));
    if (!child) {
      return errno == ENOENT;
    }
    for_each_entry(child.get(), [&](const char* entry) { remove_tree_at(child.get(), entry); });
  }
  return unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

} // namespace dtrain
