#include "trainer/job/shared_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/entropy.h"

namespace trainer {
namespace {

constexpr const char* k_name = "dtrain-comm";

} // namespace

SharedFile SharedFile::create() {
  SharedFile file;
  file.fd_ = Fd(memfd_create(k_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // It never gets shorter, so that those who have mapped it may rely on its length.
  if (!file.fd_ || fcntl(file.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    throw Error("shared memory: memfd_create: " + error_text(errno));
  }
  file.grow(k_shared_page);
  file.nonce_ = random_value<Nonce>();
  const Mapping page = file.map(0, k_shared_page);
  std::memcpy(page.data(), file.nonce_.data(), file.nonce_.size());
  return file;
}

SharedFile SharedFile::open(const Ticket& ticket) {
  SharedFile file;
  if (ticket.fd < 0) {
    return file;
  }
  // In another pid namespace this may be anybody's file: look before it is opened.
  const std::string path = fmt::format("/proc/{}/fd/{}", ticket.pid, ticket.fd);
  const std::string expected = fmt::format("/memfd:{}", k_name);
  std::array<char, 64> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0 ||
      !std::string_view(target.data()).starts_with(expected)) {
    return file;
  }
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size < static_cast<off_t>(k_shared_page) ||
      (fcntl(fd.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    return file;
  }
  Nonce found{};
  if (pread(fd.get(), found.data(), found.size(), 0) != static_cast<ssize_t>(found.size()) ||
      found != ticket.nonce) {
    return file;
  }
  file.fd_ = std::move(fd);
  file.nonce_ = ticket.nonce;
  return file;
}

SharedFile::Ticket SharedFile::ticket() const { return {getpid(), fd_.get(), nonce_}; }

void SharedFile::grow(std::size_t size) const {
  // Reserved now, a lack of memory is an error here and not a SIGBUS later.
  const int failed = posix_fallocate(fd_.get(), 0, static_cast<off_t>(size));
  if (failed != 0) {
    throw Error(fmt::format("no {} bytes of shared memory: {}", size, error_text(failed)));
  }
}

SharedFile::Mapping SharedFile::map(std::size_t offset, std::size_t size) const {
  // Reading past the file's end would raise SIGBUS.
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) < offset + size) {
    throw Error(fmt::format("shared memory: a peer's file has {} bytes, not {}", status.st_size,
                            offset + size));
  }
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(),
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) {
    throw Error(fmt::format("shared memory: mapping {} bytes: {}", size, error_text(errno)));
  }
  return {at, size};
}

SharedFile::Mapping::~Mapping() {
  if (!bytes_.empty()) {
    munmap(bytes_.data(), bytes_.size());
  }
}

} // namespace trainer
