// IDX, the format of MNIST: big-endian, two zero bytes, a type (0x08: unsigned bytes, the only one
// here), the number of dimensions, each as 32 bits, then the values, last dimension fastest.
// Images have magic 2051 (three dimensions), labels 2049 (one).
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

struct IdxArray {
  std::vector<std::uint32_t> dimensions; ///< Slowest first: count, height, width.
  Bytes values;                          ///< Their product; a plain file's own pages.
};

std::size_t idx_header_size(std::size_t dimensions);

/// The dimensions in a file's first bytes, of which there are fewer where it ended. Throws
/// DataError.
std::vector<std::uint32_t> parse_idx_header(const std::string& path,
                                            std::span<const std::uint8_t> header,
                                            std::size_t dimensions);

/// Reads a file, plain or gzip, with that number of dimensions.
/// Throws DataError naming the file, what was found and what was expected.
IdxArray read_idx(const std::string& path, std::size_t dimensions);

/// Throws DataError for a label that is not below `classes`.
[[noreturn]] void refuse_label(const std::string& path, std::uint8_t label, std::uint64_t position,
                               std::size_t classes);

} // namespace trainer
