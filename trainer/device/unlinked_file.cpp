#include "trainer/device/unlinked_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

[[noreturn]] void refuse(const std::string& folder, std::size_t bytes, int error) {
  constexpr double k_million = 1e6;
  throw UsageError(fmt::format("{}: no file of {:.1f} MB there for what is offloaded: {}", folder,
                               static_cast<double>(bytes) / k_million, std::strerror(error)));
}

int open_unlinked(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string path = folder + "/dtrain-XXXXXX"; // For file systems without O_TMPFILE.
    fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) {
      unlink(path.c_str());
    }
  }
  return fd;
}

/// Calls move(offset, pointer, bytes), pread() or pwrite(), until the whole range is done.
template <typename Pointer, typename Move>
bool whole(std::size_t offset, Pointer at, std::size_t bytes, const Move& move) {
  while (bytes > 0) {
    const ssize_t moved = move(at, bytes, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      errno = moved == 0 ? EIO : errno; // The file has been cut short.
      return false;
    }
    at += moved;
    offset += static_cast<std::size_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

} // namespace

UnlinkedFile::UnlinkedFile(const std::string& folder, std::size_t bytes)
    : fd_(open_unlinked(folder)) {
  const int error = fd_ < 0 ? errno : posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    if (fd_ >= 0) {
      close(fd_);
    }
    refuse(folder, bytes, error);
  }
}

UnlinkedFile::~UnlinkedFile() { close(fd_); }

bool UnlinkedFile::read(std::size_t offset, void* to, std::size_t bytes) const {
  return whole(
      offset, static_cast<std::byte*>(to), bytes,
      [&](std::byte* at, std::size_t left, off_t from) { return pread(fd_, at, left, from); });
}

bool UnlinkedFile::write(std::size_t offset, const void* from, std::size_t bytes) const {
  return whole(
      offset, static_cast<const std::byte*>(from), bytes,
      [&](const std::byte* at, std::size_t left, off_t to) { return pwrite(fd_, at, left, to); });
}

Buffer file_backed(const std::string& folder, std::size_t count) {
  if (count == 0) {
    return Buffer(0);
  }
  const std::size_t bytes = count * sizeof(float);
  const UnlinkedFile file(folder, bytes);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd_, 0);
  if (mapped == MAP_FAILED) {
    refuse(folder, bytes, errno);
  }
  return {mapped, count, DType::f32, {}, [bytes](void* memory) { munmap(memory, bytes); }};
}

} // namespace trainer
