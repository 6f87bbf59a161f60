#include "trainer/data/labels.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/data/idx.h"
#include "trainer/errors.h"

namespace trainer {

DType label_type(std::size_t classes) {
  constexpr std::size_t k_bytes = std::size_t{1} << 8;
  constexpr std::size_t k_of_16_bits = std::size_t{1} << 15;
  return classes <= k_bytes ? DType::u8 : classes <= k_of_16_bits ? DType::i16 : DType::i32;
}

void check_label(const std::string& path, std::int32_t label, std::uint64_t position,
                 std::size_t classes) {
  if (label < 0) {
    throw DataError(fmt::format("{}: label {} at position {}; labels are 0 to {}", path, label,
                                position, classes - 1));
  }
  if (static_cast<std::size_t>(label) >= classes) {
    throw DataError(fmt::format("{}: label {} at position {}; labels are 0 to {}: are there more "
                                "classes (--classes=N)?",
                                path, label, position, classes - 1));
  }
}

Bytes read_labels(const std::string& path, std::size_t classes) {
  static_assert(std::endian::native == std::endian::little, "a number's first bytes are its own");
  IdxArray array = read_idx(path, 1);
  const std::size_t count = array.header.dimensions[0];
  const std::size_t size = size_of(label_type(classes));
  const bool stays = array.header.value_bytes == 1 && size == 1;
  std::vector<std::uint8_t> values(stays ? 0 : count * size);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t label = idx_value(array.values.data(), array.header.value_bytes, i);
    check_label(path, label, i, classes);
    if (!stays) {
      std::memcpy(values.data() + i * size, &label, size);
    }
  }
  return stays ? std::move(array.values) : Bytes(std::move(values));
}

} // namespace trainer
