// Bytes that are read and not changed: memory of their own, or a file's pages, which all processes
// of a machine that read the file share and the kernel may take back and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainer {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::vector<std::uint8_t> own);

  /// `size` bytes of a file from `offset` on, which are asked for at once. None where it is no
  /// ordinary file, does not end there, or cannot be mapped. A file that is cut short while it is
  /// in use ends the process (SIGBUS).
  static std::optional<Bytes> map(const std::string& path, std::size_t offset, std::size_t size);

  const std::uint8_t* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  const std::uint8_t& operator[](std::size_t i) const { return view_[i]; }
  auto begin() const { return view_.begin(); }
  auto end() const { return view_.end(); }
  bool is_mapped() const { return mapping_ != nullptr; }

 private:
  std::shared_ptr<const std::vector<std::uint8_t>> own_;
  std::shared_ptr<const void> mapping_;
  std::span<const std::uint8_t> view_;
};

} // namespace trainer
