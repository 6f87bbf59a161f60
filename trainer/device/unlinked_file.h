// A file without a name, so that nothing stays behind however this process ends.
#pragma once

#include <cstddef>
#include <string>

#include "trainer/device/buffer.h"

namespace trainer {

class UnlinkedFile {
 public:
  /// Of `bytes` zeros in `folder`, all of them allocated now: on a full disk a later write would
  /// fail. Throws UsageError naming the folder.
  UnlinkedFile(const std::string& folder, std::size_t bytes);
  ~UnlinkedFile();
  UnlinkedFile(const UnlinkedFile&) = delete;
  UnlinkedFile& operator=(const UnlinkedFile&) = delete;

  /// Whole ranges; on failure return false and set errno.
  bool read(std::size_t offset, void* to, std::size_t bytes) const;
  bool write(std::size_t offset, const void* from, std::size_t bytes) const;

 private:
  int fd_;

  friend Buffer file_backed(const std::string& folder, std::size_t count);
};

/// Zeroed floats that such a file backs: they need not all fit into memory. Throws UsageError
/// naming the folder.
Buffer file_backed(const std::string& folder, std::size_t count);

} // namespace trainer
