#include "trainer/optim/arena_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <sys/mman.h>

#include "trainer/device/host_memory.h"

namespace trainer {
namespace {

struct Bytes {
  std::size_t first;
  std::size_t last;
};

/// All pages that hold some of it, from a page's begin.
Bytes pages_of(std::size_t first, std::size_t last) {
  const std::size_t page = host_page_bytes();
  return {first / page * page, (last + page - 1) / page * page};
}

} // namespace

ArenaFile::ArenaFile(std::span<float> arena, const std::vector<ArenaRange>& parts,
                     const std::string& folder, const char* what)
    : file_(folder, what) {
  std::size_t mapped = 0;
  for (const ArenaRange& part : parts) {
    const Bytes pages = pages_of(part.first * sizeof(float), part.last * sizeof(float));
    const std::size_t first = std::max(mapped, pages.first);
    if (pages.last > first) {
      file_.allocate(first, pages.last - first);
      file_.map(first, pages.last - first, reinterpret_cast<std::byte*>(arena.data()) + first);
      mapped = pages.last;
    }
  }
}

ValueFile::Ticket ArenaFile::start_read(std::size_t /*at*/, std::span<float> to) {
  const auto first = reinterpret_cast<std::uintptr_t>(to.data());
  const Bytes pages = pages_of(first, first + to.size_bytes());
  const std::span<std::byte> memory(reinterpret_cast<std::byte*>(to.data()) - (first - pages.first),
                                    pages.last - pages.first);
  madvise(memory.data(), memory.size(), MADV_WILLNEED);
  coming_[++asked_] = memory;
  return asked_;
}

void ArenaFile::wait(Ticket ticket) {
  const auto found = coming_.find(ticket);
  const std::span<std::byte> memory = found->second;
  coming_.erase(found);
#ifdef MADV_POPULATE_READ // Since Linux 5.14; without it, whoever touches a page waits for it.
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_READ) != 0 && errno == EFAULT) {
    errno = EIO; // As it says of a page that cannot be read.
    file_.fail("read");
  }
#endif
}

void ArenaFile::read(std::size_t at, std::span<float> to) const {
  file_.read(at * sizeof(float), to.data(), to.size_bytes());
}

void ArenaFile::write(std::size_t at, std::span<const float> from) {
  file_.write(at * sizeof(float), from.data(), from.size_bytes());
}

} // namespace trainer
