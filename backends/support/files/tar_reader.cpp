#include "backends/support/files/tar_reader.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>

namespace dtrain {
namespace {

constexpr std::size_t k_block = 512;
constexpr std::int64_t k_longest_text = 1 << 20;
constexpr std::int64_t k_largest = std::int64_t{1} << 60;

[[noreturn]] void refuse(std::string_view why) {
  throw EngineError(fmt::format("bad archive: {}", why));
}

/// Up to the first NUL.
std::string_view text_at(std::string_view block, std::size_t at, std::size_t length) {
  const auto field = block.substr(at, length);
  return field.substr(0, field.find('\0'));
}

/// Octal, or, where its first bit says so, in base 256 (GNU).
std::int64_t number_at(std::string_view block, std::size_t at, std::size_t length) {
  const auto field = block.substr(at, length);
  std::int64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    if (field[0] != '\x80') {
      refuse("a number below zero");
    }
    for (const char c : field.substr(1)) {
      if (value > k_largest >> 8) {
        refuse("a number too large");
      }
      value = (value << 8) | static_cast<unsigned char>(c);
    }
    return value;
  }
  auto digits = text_at(field, 0, length);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (!digits.empty() && (end.ec != std::errc() || end.ptr != digits.data() + digits.size())) {
    refuse("an invalid number");
  }
  return value;
}

bool has_its_sum(std::string_view block) {
  constexpr std::size_t k_sum_at = 148;
  constexpr std::size_t k_sum_length = 8;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    sum +=
        i >= k_sum_at && i < k_sum_at + k_sum_length ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return number_at(block, k_sum_at, k_sum_length) == sum;
}

/// "./a//b/" is "a/b".
std::string plain_path(std::string_view path) {
  if (path.starts_with('/')) {
    refuse(fmt::format("'{}' is an absolute path", printable(path)));
  }
  std::string plain;
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto name = path.substr(at, end - at);
    at = end + 1;
    if (name == "..") {
      refuse(fmt::format("'{}' leads out of the folder", printable(path)));
    }
    if (!name.empty() && name != ".") {
      plain += (plain.empty() ? "" : "/") + std::string(name);
    }
  }
  return plain;
}

TarEntry::Kind kind_of(char type) {
  switch (type) {
  case '0':
  case '\0':
  case '7': // "Contiguous".
    return TarEntry::Kind::file;
  case '1':
    return TarEntry::Kind::hard_link;
  case '2':
    return TarEntry::Kind::link;
  case '5':
    return TarEntry::Kind::folder;
  case '3':
  case '4':
  case '6':
    return TarEntry::Kind::other;
  default:
    refuse(fmt::format("an entry of type '{}'", printable(std::string_view(&type, 1))));
  }
}

bool says_more(char type) { return type == 'L' || type == 'K' || type == 'x' || type == 'g'; }

} // namespace

void TarReader::add(std::string_view bytes) {
  while (!bytes.empty() && !ended_) {
    const auto take = [&](std::int64_t most) {
      const auto some = bytes.substr(
          0, static_cast<std::size_t>(std::min<std::int64_t>(most, std::ssize(bytes))));
      bytes.remove_prefix(some.size());
      return some;
    };
    if (left_ > 0) {
      const auto some = take(left_);
      left_ -= std::ssize(some);
      if (says_more(type_)) {
        text_ += some;
        if (left_ == 0) {
          end_text();
        }
      } else {
        on_bytes_(some);
      }
    } else if (padding_ > 0) {
      padding_ -= std::ssize(take(padding_));
    } else {
      block_ += take(static_cast<std::int64_t>(k_block - block_.size()));
      if (block_.size() == k_block) {
        read_header(block_);
        block_.clear();
      }
    }
  }
}

void TarReader::read_header(std::string_view block) {
  if (block.find_first_not_of('\0') == std::string_view::npos) {
    ended_ = true;
    return;
  }
  if (!has_its_sum(block)) {
    refuse("a header is damaged");
  }
  constexpr std::size_t k_type_at = 156;
  type_ = block[k_type_at];
  left_ = number_at(block, 124, 12);
  if (says_more(type_)) {
    if (left_ > k_longest_text) {
      refuse("a name is too long");
    }
    text_.clear();
  } else {
    TarEntry entry;
    entry.kind = kind_of(type_);
    entry.mode = static_cast<unsigned>(number_at(block, 100, 8) & 0777);
    std::string path(text_at(block, 0, 100));
    if (text_at(block, 257, 6) == "ustar" && !text_at(block, 345, 155).empty()) { // POSIX, not GNU.
      path = fmt::format("{}/{}", text_at(block, 345, 155), path);
    }
    path = long_path_.empty() ? path : long_path_;
    entry.target = long_target_.empty() ? std::string(text_at(block, 157, 100)) : long_target_;
    left_ = long_size_ < 0 ? left_ : long_size_;
    long_path_.clear();
    long_target_.clear();
    long_size_ = -1;
    // From tar programs before 1988.
    if (entry.kind == TarEntry::Kind::file && path.ends_with('/')) {
      entry.kind = TarEntry::Kind::folder;
    }
    if (entry.kind != TarEntry::Kind::file) {
      left_ = 0; // A hard link's says the file's, which does not follow.
    }
    entry.path = plain_path(path);
    if (entry.kind == TarEntry::Kind::hard_link) {
      entry.target = plain_path(entry.target);
    }
    entry.size = left_;
    on_entry_(entry);
  }
  padding_ = (static_cast<std::int64_t>(k_block) - left_ % static_cast<std::int64_t>(k_block)) %
             static_cast<std::int64_t>(k_block);
}

void TarReader::end_text() {
  if (type_ == 'L') {
    long_path_ = text_at(text_, 0, text_.size());
  } else if (type_ == 'K') {
    long_target_ = text_at(text_, 0, text_.size());
  } else if (type_ == 'x') {
    read_pax(text_);
  }
}

/// From records "LENGTH KEY=VALUE\n".
void TarReader::read_pax(std::string_view text) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(end.ptr - text.data());
    if (end.ec != std::errc() || length <= digits + 1 || length > text.size() ||
        text[digits] != ' ' || text[length - 1] != '\n') {
      refuse("a pax header is damaged");
    }
    const auto record = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    const auto equals = record.find('=');
    const auto key = record.substr(0, equals);
    const auto value = equals == std::string_view::npos ? "" : record.substr(equals + 1);
    if (value.find('\0') != std::string_view::npos) {
      refuse("a name with a NUL byte");
    }
    if (key == "path") {
      long_path_ = value;
    } else if (key == "linkpath") {
      long_target_ = value;
    } else if (key == "size") {
      const auto read = std::from_chars(value.data(), value.data() + value.size(), long_size_);
      if (read.ec != std::errc() || read.ptr != value.data() + value.size() || long_size_ < 0 ||
          long_size_ > k_largest) {
        refuse("an invalid size");
      }
    } else if (key.starts_with("GNU.sparse.")) {
      refuse("a sparse file");
    }
  }
}

} // namespace dtrain
