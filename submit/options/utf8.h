// UTF-8, decoded strictly: no surrogates, no overlong forms, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace dtrain {

/// A decoded character; `length` is 0 where the bytes at the front are not UTF-8.
struct Utf8Char {
  char32_t code = 0;
  std::size_t length = 0;
};

/// The first character of `text`.
Utf8Char decode_utf8(std::string_view text);

/// Columns that `text` takes on a terminal, a character each.
std::size_t utf8_columns(std::string_view text);

} // namespace dtrain
