// Reads a tar archive as it comes: ustar with what GNU tar, busybox and bsdtar write of long names
// (types L and K; pax headers). Nothing in it is believed: what is no such archive, or has a name
// that could lead out of the folder it is for, is refused.
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
  std::string target; ///< Of a link, as it is; of a hard link, a path as above.
  std::int64_t size = 0;
  unsigned mode = 0;
};

class TarReader {
 public:
  using OnEntry = std::function<void(const TarEntry&)>;
  using OnBytes = std::function<void(std::string_view)>; ///< Of the last entry, a file.

  TarReader(OnEntry on_entry, OnBytes on_bytes)
      : on_entry_(std::move(on_entry)), on_bytes_(std::move(on_bytes)) {}

  /// Throws EngineError, and what the functions throw.
  void add(std::string_view bytes);

  /// Its end has been seen.
  bool ended() const { return ended_; }

 private:
  void read_header(std::string_view block);
  void read_pax(std::string_view text);
  void end_text();

  OnEntry on_entry_;
  OnBytes on_bytes_;
  std::string block_;        ///< Of a header that has come in part.
  std::int64_t left_ = 0;    ///< Of the entry's bytes.
  std::int64_t padding_ = 0; ///< Behind them.
  char type_ = '\0';         ///< Of the entry whose bytes come.
  std::string text_;         ///< Of one that says more of the next.
  std::string long_path_;    ///< What it said; empty: nothing.
  std::string long_target_;
  std::int64_t long_size_ = -1;
  bool ended_ = false;
};

} // namespace dtrain
