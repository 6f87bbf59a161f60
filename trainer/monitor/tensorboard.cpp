#include "trainer/monitor/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/monitor/crc32c.h"

namespace trainer {
namespace {

constexpr std::uint32_t k_mask_delta = 0xA282EAD8;
constexpr mode_t k_event_file_mode = 0666;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename Number>
std::string raw(Number number) {
  std::array<char, sizeof(Number)> bytes{};
  std::memcpy(bytes.data(), &number, sizeof(Number));
  return {bytes.data(), bytes.size()};
}

// Protocol buffers: a field is its number and wire type, then the value.
enum ProtoWireType : std::uint8_t { k_varint = 0, k_fixed64 = 1, k_bytes = 2, k_fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>(value | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string encoded(unsigned number, ProtoWireType type, const std::string& content) {
  std::string bytes = varint(number << 3 | type);
  if (type == k_bytes) {
    bytes += varint(content.size());
  }
  return bytes + content;
}

} // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + k_mask_delta;
}

TensorBoard::TensorBoard(const std::string& folder) {
  make_folder(folder);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  path_ = (std::filesystem::path(folder) /
           fmt::format("events.out.tfevents.{:010.0f}.{}.{}.0", wall_time(), host.data(), getpid()))
              .string();
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, k_event_file_mode);
  if (file_ < 0) {
    throw Error(fmt::format("{}: cannot create: {}", path_, std::strerror(errno)));
  }
  record(encoded(1, k_fixed64, raw(wall_time())) + encoded(3, k_bytes, "brain.Event:2"));
}

TensorBoard::~TensorBoard() {
  if (file_ >= 0) {
    close(file_);
  }
}

void TensorBoard::record(std::string_view data) {
  const std::string length = raw(static_cast<std::uint64_t>(data.size()));
  std::string bytes = length + raw(masked_crc32c(length));
  bytes += data;
  bytes += raw(masked_crc32c(data));
  const ssize_t written = write(file_, bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) {
    throw Error(
        fmt::format("{}: cannot write: {}", path_, std::strerror(written < 0 ? errno : ENOSPC)));
  }
}

void TensorBoard::scalars(std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    summary +=
        encoded(1, k_bytes,
                encoded(1, k_bytes, tag) + encoded(2, k_fixed32, raw(static_cast<float>(value))));
  }
  record(encoded(1, k_fixed64, raw(wall_time())) +
         encoded(2, k_varint, varint(static_cast<std::uint64_t>(step))) +
         encoded(5, k_bytes, summary));
}

void TensorBoard::forget_after(std::int64_t step) {
  // session_log (7), whose status (1) is START (1): TensorBoard drops events from `step` on.
  record(encoded(1, k_fixed64, raw(wall_time())) +
         encoded(2, k_varint, varint(static_cast<std::uint64_t>(step + 1))) +
         encoded(7, k_bytes, encoded(1, k_varint, varint(1))));
}

} // namespace trainer
