// safetensors, the format of Hugging Face: 8 bytes little-endian N, N bytes of JSON, then the data.
//
//   {"__metadata__": {"k": "v"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
//   24]}}
//
// Offsets count from the end of the JSON; tensors fill the data without holes or overlaps,
// row-major little-endian. All of that is checked before a value is used. F32 is written; F16, BF16
// and I64 are read too, as float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/xxh64.h"
#include "trainer/files.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;
};

/// A tensor's name and shape.
struct TensorShape {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Writes a file that appears whole or not at all, see AtomicFile. Throws Error.
class SafeTensorsWriter {
 public:
  SafeTensorsWriter(const std::string& path, const std::map<std::string, std::string>& metadata,
                    std::span<const TensorShape> tensors);
  /// Appends values: row-major, tensor after tensor.
  void write(std::span<const float> values) { write(std::as_bytes(values)); }
  void commit() { file_.commit(); }

  /// Length and digest of all that was written so far.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t digest() const { return digest_.digest(); } ///< XXH64

 private:
  void write(std::span<const std::byte> bytes);

  AtomicFile file_;
  Xxh64 digest_{0};
  std::uint64_t bytes_ = 0;
};

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const NamedTensor> tensors);

struct ValueType;

/// A tensor's place in a file.
struct StoredTensor {
  std::string name;
  std::vector<std::size_t> shape;
  const ValueType* type;
  std::uint64_t first; ///< Offset in the file, in bytes.
  std::uint64_t last;

  std::size_t count() const; ///< Number of values.
};

/// A file that is read a part at a time.
class SafeTensorsFile {
 public:
  /// Throws DataError naming the file and what is wrong with it.
  explicit SafeTensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; } ///< In the file's order.
  /// Reads values from number `first` on, row-major. Throws DataError if they cannot be read.
  void read(const StoredTensor& tensor, std::size_t first, std::span<float> to) const;

 private:
  InputFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
};

/// Throws DataError naming the file and what is wrong with it.
SafeTensors read_safetensors(const std::string& path);

/// The same from memory; messages call it `name`.
SafeTensors parse_safetensors(std::span<const std::byte> file, const std::string& name);

} // namespace trainer
