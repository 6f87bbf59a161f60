#include "submit/options/utf8.h"

#include <algorithm>

namespace dtrain {
namespace {

constexpr unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

constexpr bool is_continuation(unsigned char byte) { return (byte & 0xC0U) == 0x80U; }

} // namespace

Utf8Char decode_utf8(std::string_view text) {
  if (text.empty()) {
    return {};
  }
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80U) {
    return {first, 1};
  }
  std::size_t length = 0;
  char32_t code = 0;
  char32_t smallest = 0; // of this length; anything below it is an overlong form
  if ((first & 0xE0U) == 0xC0U) {
    length = 2, code = first & 0x1FU, smallest = 0x80;
  } else if ((first & 0xF0U) == 0xE0U) {
    length = 3, code = first & 0x0FU, smallest = 0x800;
  } else if ((first & 0xF8U) == 0xF0U) {
    length = 4, code = first & 0x07U, smallest = 0x10000;
  } else {
    return {};
  }
  if (text.size() < length) {
    return {};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte_at(text, i))) {
      return {};
    }
    code = (code << 6U) | (byte_at(text, i) & 0x3FU);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest || surrogate || code > 0x10FFFF) {
    return {};
  }
  return {code, length};
}

std::size_t utf8_columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return !is_continuation(static_cast<unsigned char>(c));
  }));
}

} // namespace dtrain
