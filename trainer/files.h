// Files that are either written whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trainer {

/// Writes beside the target under a name of its own; commit() makes it the target in one step.
/// Anything before commit() (a full disk, an exception) leaves the target as it was and removes
/// what was written. Throws Error naming the file and the cause.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);

  /// Flushes to the disk and renames.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

/// A file's bytes, as they lie on the disk. Whoever shortens the file meanwhile ends the process:
/// of files that are only ever replaced.
class MappedFile {
 public:
  /// Throws Error naming the file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// Creates a folder and those above it. Throws Error.
void make_folder(const std::string& path);

} // namespace trainer
