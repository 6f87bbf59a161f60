// Reads a tar archive as a stream: ustar with the long names of GNU tar, busybox and bsdtar (types
// L and K; pax headers). Nothing in it is trusted: malformed archives, and names that lead out of
// the destination, are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace dtrain {

struct TarEntry {
  enum class Kind { file, folder, link, hard_link, other };
  Kind kind = Kind::file;
  std::string path;   ///< "a/b": relative, no . or .. in it; empty: the folder itself.
  std::string target; ///< Of a link, unchanged; of a hard link, a path as above.
  std::int64_t size = 0;
  unsigned mode = 0;
};

class TarReader {
 public:
  using OnEntry = std::function<void(const TarEntry&)>;
  using OnBytes = std::function<void(std::string_view)>; ///< Bytes of the last entry, a file.

  TarReader(OnEntry on_entry, OnBytes on_bytes)
      : on_entry_(std::move(on_entry)), on_bytes_(std::move(on_bytes)) {}

  /// Throws EngineError, and whatever the functions throw.
  void add(std::string_view bytes);

  /// Whether its end has been seen.
  bool ended() const { return ended_; }

 private:
  void read_header(std::string_view block);
  void read_pax(std::string_view text);
  void end_text();

  OnEntry on_entry_;
  OnBytes on_bytes_;
  std::string block_;        ///< A header of which a part has arrived.
  std::int64_t left_ = 0;    ///< Bytes left of the entry.
  std::int64_t padding_ = 0; ///< Padding after them.
  char type_ = '\0';         ///< Type of the current entry.
  std::string text_;         ///< Contents of an entry that describes the next.
  std::string long_path_;    ///< From such an entry; empty: none.
  std::string long_target_;
  std::int64_t long_size_ = -1;
  bool ended_ = false;
};

} // namespace dtrain
