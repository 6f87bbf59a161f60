// Files that are either written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// A file that is read in parts: mapped, what has been read would count as memory of the process.
class InputFile {
 public:
  /// Throws Error naming the file and the cause.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// All of `to`, from byte `at` on. Throws Error, also where the file has become shorter.
  void read(std::uint64_t at, std::span<std::byte> to) const;

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

/// Creates a folder and those above it. Throws Error.
void make_folder(const std::string& path);

} // namespace trainer
