#include "trainer/data/bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/huge_pages.h"

namespace trainer {

Bytes::Bytes(std::vector<std::uint8_t> own)
    : own_(std::make_shared<const std::vector<std::uint8_t>>(std::move(own))), view_(*own_) {
  use_huge_pages(std::as_bytes(view_));
}

std::optional<Bytes> Bytes::map(const std::string& path, std::size_t offset, std::size_t size) {
  struct stat status {};
  // Opening a FIFO to inspect it would end its writer, so do not open it.
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || size == 0 ||
      static_cast<std::size_t>(status.st_size) != offset + size) {
    return std::nullopt;
  }
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return std::nullopt;
  }
  const std::size_t length = offset + size;
  void* const memory = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    return std::nullopt;
  }
  (void)madvise(memory, length, MADV_WILLNEED);
  Bytes bytes;
  bytes.mapping_ = std::shared_ptr<const void>(
      memory, [length](const void* at) { munmap(const_cast<void*>(at), length); });
  bytes.view_ = {static_cast<const std::uint8_t*>(memory) + offset, size};
  return bytes;
}

} // namespace trainer
