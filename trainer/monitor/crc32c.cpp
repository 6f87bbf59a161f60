#include "trainer/monitor/crc32c.h"

#include <array>

namespace trainer {
namespace {

constexpr std::uint32_t k_polynomial = 0x82F63B78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = value >> 1 ^ ((value & 1) != 0 ? k_polynomial : 0);
    }
    table[byte] = value;
  }
  return table;
}

constexpr auto k_table = make_table();

} // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t value = ~0U;
  for (const char byte : bytes) {
    value = value >> 8 ^ k_table[(value ^ static_cast<std::uint8_t>(byte)) & 0xFF];
  }
  return ~value;
}

} // namespace trainer
