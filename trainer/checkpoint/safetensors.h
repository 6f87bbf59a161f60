// safetensors, the format of Hugging Face: 8 bytes little-endian N, N bytes of JSON, then the data.
//
//   {"__metadata__": {"k": "v"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
//   24]}}
//
// Offsets count from the end of the JSON; tensors fill the data without holes or overlaps,
// row-major little-endian. All of that is checked before a value is used. Only F32 is read and
// written.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/nn/tensor_table.h"

namespace trainer {

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;
};

/// A tensor that is asked for its values when its turn to be written comes: of all of them, one at
/// a time is copied.
struct TensorSource {
  std::string name;
  std::vector<std::size_t> shape;
  std::function<void(std::span<float> to)> read; ///< Row-major.
};

/// Whole or not at all, see AtomicFile. Throws Error.
void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const TensorSource> tensors);

/// Throws DataError naming the file and what is wrong with it.
SafeTensors read_safetensors(const std::string& path);

/// The same from memory; `name` is what messages call it.
SafeTensors parse_safetensors(std::span<const std::byte> file, const std::string& name);

} // namespace trainer
