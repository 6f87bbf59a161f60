// A file without a name, so that nothing stays behind however this process ends.
#pragma once

#include <cstddef>
#include <string>

#include "trainer/device/buffer.h"

namespace trainer {

class UnlinkedFile {
 public:
  /// Empty. `what` it is for: "the parameters". Errors name both. Throws UsageError.
  UnlinkedFile(std::string folder, const char* what);
  ~UnlinkedFile();
  UnlinkedFile(const UnlinkedFile&) = delete;
  UnlinkedFile& operator=(const UnlinkedFile&) = delete;

  /// Zeros there, all of them allocated now: on a full disk a later write would fail. Throws
  /// UsageError.
  void allocate(std::size_t offset, std::size_t bytes);
  /// Maps what has been allocated: whole pages, to `at`, in place of what is there, or to anywhere.
  /// Throws UsageError.
  void* map(std::size_t offset, std::size_t bytes, void* at = nullptr) const;
  /// Of what has been allocated. Throw Error.
  void read(std::size_t offset, void* to, std::size_t bytes) const;
  void write(std::size_t offset, const void* from, std::size_t bytes) const;
  /// Throws the error of one that failed, by errno.
  [[noreturn]] void fail(const char* verb) const;

 private:
  std::string folder_;
  const char* what_;
  int fd_;
};

/// Zeroed floats that such a file backs: they need not all fit into memory. Throws UsageError
/// naming the folder.
Buffer file_backed(const std::string& folder, std::size_t count);

} // namespace trainer
