#include "trainer/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "trainer/errors.h"

namespace trainer {
namespace {
constexpr mode_t k_mode = 0666; // less the umask

/// A file of this process alone: what lies there is removed, and no link is followed.
int open_anew(const std::string& path) {
  unlink(path.c_str());
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, k_mode);
}

} // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp.{}", path_, getpid())),
      file_(open_anew(temporary_)) {
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

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  void* at = nullptr;
  if (file < 0 || fstat(file, &status) != 0 ||
      (status.st_size > 0 && (at = mmap(nullptr, static_cast<std::size_t>(status.st_size),
                                        PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED)) {
    const int error = errno;
    close(file);
    throw Error(fmt::format("{}: cannot read: {}", path, std::strerror(error)));
  }
  close(file);
  bytes_ = {static_cast<std::byte*>(at), static_cast<std::size_t>(status.st_size)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    munmap(bytes_.data(), bytes_.size());
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
