// IDX, the format of MNIST: big-endian, two zero bytes, a type, the number of dimensions, each as
// 32 bits, then the values, last dimension fastest. Images are unsigned bytes in three dimensions,
// magic 2051. Labels have one, and are unsigned bytes (type 0x08, magic 2049) or whole numbers of
// 16 or 32 bits (0x0B and 0x0C, 2817 and 3073).
//
// Nothing is believed before it is checked: dimensions against k_max_idx_bytes, and the length
// against the dimensions, byte for byte; memory grows with what was read, not with what is claimed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/bytes.h"

namespace trainer {

inline constexpr std::uint64_t k_max_idx_bytes = std::uint64_t{1} << 36;

struct IdxHeader {
  std::vector<std::uint32_t> dimensions; ///< Slowest first: count, height, width.
  std::size_t value_bytes = 1;           ///< 1: unsigned; 2 or 4: signed.
};

struct IdxArray {
  IdxHeader header;
  Bytes values; ///< As they lie in the file; a plain file's own pages.
};

std::size_t idx_header_size(std::size_t dimensions);

/// What a file's first bytes say, of which there are fewer where it ended. Throws DataError.
IdxHeader parse_idx_header(const std::string& path, std::span<const std::uint8_t> header,
                           std::size_t dimensions);

/// Reads a file, plain or gzip, with that number of dimensions.
/// Throws DataError naming the file, what was found and what was expected.
IdxArray read_idx(const std::string& path, std::size_t dimensions);

/// Value number `number` of a file's.
std::int32_t idx_value(const std::uint8_t* values, std::size_t value_bytes, std::uint64_t number);

} // namespace trainer
