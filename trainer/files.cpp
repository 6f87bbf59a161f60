#include "trainer/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "trainer/errors.h"

namespace trainer {
namespace {
constexpr mode_t k_mode = 0666; // less the umask

/// A file of this process alone: what lies there is removed, and no link is followed.
int open_new(const std::string& path) {
  unlink(path.c_str());
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, k_mode);
}

} // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp.{}", path_, getpid())),
      file_(open_new(temporary_)) {
  if (file_ < 0) {
    fail(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) {
    close(file_);
    unlink(temporary_.c_str());
  }
}

void AtomicFile::fail(int error) const {
  throw Error(fmt::format("{}: cannot write: {}", path_, std::strerror(error)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      fail(errno);
    }
    bytes = bytes.subspan(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  close(std::exchange(file_, -1));
  // The rename itself must reach the disk; where a folder cannot be synced, there is no more to do.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat status {};
  if (file_ < 0 || fstat(file_, &status) != 0) {
    const int error = errno;
    close(file_);
    fail(error);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(file_); }

void InputFile::fail(int error) const {
  throw Error(fmt::format("{}: cannot read: {}", path_,
                          error == 0 ? "the file was truncated" : std::strerror(error)));
}

void InputFile::read(std::uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = pread(file_, to.data(), to.size(), static_cast<off_t>(at));
    if (count == 0 || (count < 0 && errno != EINTR)) {
      fail(count == 0 ? 0 : errno);
    }
    const auto done = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    at += done;
    to = to.subspan(done);
  }
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw Error(fmt::format("{}: cannot create the folder: {}", path, error.message()));
  }
}

} // namespace trainer
