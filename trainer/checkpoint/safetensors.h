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

/// What is known of a tensor before its values.
struct TensorShape {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Whole or not at all, see AtomicFile. Throws Error.
class SafeTensorsWriter {
 public:
  SafeTensorsWriter(const std::string& path, const std::map<std::string, std::string>& metadata,
                    std::span<const TensorShape> tensors);
  /// What follows in the file: row-major, tensor after tensor.
  void write(std::span<const float> values) { write(std::as_bytes(values)); }
  void commit() { file_.commit(); }

  /// Of all that was written so far.
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

/// Where a tensor lies in a file.
struct StoredTensor {
  std::string name;
  std::vector<std::size_t> shape;
  const ValueType* type;
  std::uint64_t first; ///< Byte of the file.
  std::uint64_t last;

  std::size_t count() const; ///< Its values.
};

/// A file of which a part at a time is read.
class SafeTensorsFile {
 public:
  /// Throws DataError naming the file and what is wrong with it.
  explicit SafeTensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; } ///< As they lie there.
  /// Values from `first` on, row-major. Throws DataError where they cannot be read.
  void read(const StoredTensor& tensor, std::size_t first, std::span<float> to) const;

 private:
  InputFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<StoredTensor> tensors_;
};

/// Throws DataError naming the file and what is wrong with it.
SafeTensors read_safetensors(const std::string& path);

/// The same from memory; `name` is what messages call it.
SafeTensors parse_safetensors(std::span<const std::byte> file, const std::string& name);

} // namespace trainer
