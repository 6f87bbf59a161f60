#include "trainer/device/cpu/cpu_device.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

class CpuEvent final : public Event {
 public:
  bool has_passed() const override { return true; }
  void wait() const override {}
};

} // namespace

std::unique_ptr<Event> CpuStream::record() { return std::make_unique<CpuEvent>(); }

void CpuStream::copy(const void* from, void* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CpuStream::clear(void* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

CpuDevice::CpuDevice(const CpuKernels& kernels, std::string why)
    : kernels_(with_bf16_instructions(kernels)), why_(std::move(why)), stream_(make_stream()) {}

std::string CpuDevice::describe() const {
  return fmt::format("cpu, {} kernels, 1 thread{}", kernels_.name, why_);
}

void CpuDevice::multiply_in(DType type) {
  if (type == DType::bf16) {
    kernels_.product = kernels_.gemm_bf16;
  }
}

std::unique_ptr<Stream> CpuDevice::make_stream() { return std::make_unique<CpuStream>(kernels_); }

namespace {

std::size_t host_page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// The whole pages within the range: pages shared with other data are left out.
std::span<std::byte> whole_pages(std::span<float> part) {
  const std::size_t page = host_page();
  void* first = part.data();
  std::size_t bytes = part.size_bytes();
  if (std::align(page, page, first, bytes) == nullptr) {
    return {};
  }
  return {static_cast<std::byte*>(first), bytes / page * page};
}

/// An unlinked file, so that nothing stays behind however this process ends.
class NamelessFile {
 public:
  explicit NamelessFile(const std::string& folder)
      : fd_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      std::string path = folder + "/dtrain-XXXXXX"; // For file systems without O_TMPFILE.
      fd_ = mkostemp(path.data(), O_CLOEXEC);
      if (fd_ >= 0) {
        unlink(path.c_str());
      }
    }
  }
  ~NamelessFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  /// Maps that much of the file, all zeros, at `memory`. On failure returns false and sets errno.
  bool replace(std::span<std::byte> memory) const {
    if (fd_ < 0) {
      return false;
    }
    // Allocate all of it now: a full disk would later kill the process at a write to memory.
    errno = posix_fallocate(fd_, 0, static_cast<off_t>(memory.size()));
    return errno == 0 && mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, fd_, 0) != MAP_FAILED;
  }

 private:
  int fd_;
};

} // namespace

std::size_t CpuDevice::page_bytes() const { return host_page(); }

void CpuDevice::discard(std::span<float> part) {
  if (const auto pages = whole_pages(part); !pages.empty()) {
    madvise(pages.data(), pages.size(), MADV_DONTNEED);
  }
}

void CpuDevice::fetch(std::span<float> part) {
#ifdef MADV_POPULATE_WRITE // Since Linux 5.14; without it only memory is lost.
  const std::size_t before = reinterpret_cast<std::uintptr_t>(part.data()) % host_page();
  madvise(reinterpret_cast<std::byte*>(part.data()) - before, part.size_bytes() + before,
          MADV_POPULATE_WRITE);
#endif
}

void CpuDevice::move_to_file(std::span<float> part, const std::string& folder) {
  const auto pages = whole_pages(part);
  if (!pages.empty() && !NamelessFile(folder).replace(pages)) {
    constexpr double k_million = 1e6;
    throw UsageError(fmt::format("{}: no file of {:.1f} MB there for what is offloaded: {}", folder,
                                 static_cast<double>(pages.size()) / k_million,
                                 std::strerror(errno)));
  }
}

} // namespace trainer
