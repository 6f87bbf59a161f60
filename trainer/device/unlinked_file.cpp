#include "trainer/device/unlinked_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

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

UnlinkedFile::UnlinkedFile(std::string folder, const char* what)
    : folder_(std::move(folder)), what_(what), fd_(open_unlinked(folder_)) {
  if (fd_ < 0) {
    throw UsageError(
        fmt::format("{}: no file there for {}: {}", folder_, what_, std::strerror(errno)));
  }
}

UnlinkedFile::~UnlinkedFile() { close(fd_); }

void UnlinkedFile::allocate(std::size_t offset, std::size_t bytes) {
  constexpr double k_million = 1e6;
  if (const int error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
      error != 0) {
    throw UsageError(fmt::format("{}: no {:.1f} MB there for {}: {}", folder_,
                                 static_cast<double>(bytes) / k_million, what_,
                                 std::strerror(error)));
  }
}

void* UnlinkedFile::map(std::size_t offset, std::size_t bytes, void* at) const {
  void* const mapped =
      mmap(at, bytes, PROT_READ | PROT_WRITE, at == nullptr ? MAP_SHARED : MAP_SHARED | MAP_FIXED,
           fd_, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) {
    throw UsageError(fmt::format("{}: files there cannot be mapped to memory, for {}: {}", folder_,
                                 what_, std::strerror(errno)));
  }
  return mapped;
}

void UnlinkedFile::fail(const char* verb) const {
  throw Error(fmt::format("{}: cannot {} {}: {}", folder_, verb, what_, std::strerror(errno)));
}

void UnlinkedFile::read(std::size_t offset, void* to, std::size_t bytes) const {
  if (!whole(offset, static_cast<std::byte*>(to), bytes,
             [&](std::byte* at, std::size_t left, off_t from) {
               return pread(fd_, at, left, from);
             })) {
    fail("read");
  }
}

void UnlinkedFile::write(std::size_t offset, const void* from, std::size_t bytes) const {
  if (!whole(offset, static_cast<const std::byte*>(from), bytes,
             [&](const std::byte* at, std::size_t left, off_t to) {
               return pwrite(fd_, at, left, to);
             })) {
    fail("write");
  }
}

Buffer file_backed(const std::string& folder, std::size_t count) {
  if (count == 0) {
    return Buffer(0);
  }
  const std::size_t bytes = count * sizeof(float);
  UnlinkedFile file(folder, "the weights");
  file.allocate(0, bytes);
  return {file.map(0, bytes), count, DType::f32, {}, [bytes](void* it) { munmap(it, bytes); }};
}

} // namespace trainer
