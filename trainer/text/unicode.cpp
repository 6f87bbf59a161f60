#include "trainer/text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <utf8proc.h>

#include "submit/options/utf8.h"

namespace trainer::unicode {
namespace {

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_between(int category, int first, int last) { return category >= first && category <= last; }

} // namespace

bool is_white_space(char32_t c) {
  return is_between(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP) ||
         (c >= '\t' && c <= '\r') || c == 0x85;
}

bool is_letter(char32_t c) {
  return is_between(category(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_number(char32_t c) {
  return is_between(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t c) {
  return is_between(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_word(char32_t c) {
  const int found = category(c);
  const bool is_circled_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                 (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  const bool is_joiner = c == 0x200C || c == 0x200D;
  return is_between(found, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         found == UTF8PROC_CATEGORY_PC || is_circled_letter || is_joiner;
}

bool is_invisible(char32_t c) {
  const int found = category(c);
  return found == UTF8PROC_CATEGORY_CC || found == UTF8PROC_CATEGORY_CF ||
         found == UTF8PROC_CATEGORY_CO;
}

bool is_ideograph(char32_t c) {
  struct Block {
    char32_t first;
    char32_t last;
  };
  // Hugging Face's: extension E begins 256 too late there.
  static constexpr std::array<Block, 8> k_blocks = {{{0x4E00, 0x9FFF},
                                                     {0x3400, 0x4DBF},
                                                     {0x20000, 0x2A6DF},
                                                     {0x2A700, 0x2B73F},
                                                     {0x2B740, 0x2B81F},
                                                     {0x2B920, 0x2CEAF},
                                                     {0xF900, 0xFAFF},
                                                     {0x2F800, 0x2FA1F}}};
  for (const Block& block : k_blocks) {
    if (c >= block.first && c <= block.last) {
      return true;
    }
  }
  return false;
}

void append_lower(char32_t c, std::u32string& to) {
  constexpr char32_t k_dotted_i = 0x130; // The one letter that becomes two.
  if (c == k_dotted_i) {
    to += U"i\u0307";
  } else {
    to += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

std::u32string decomposed(const std::u32string& text) {
  std::string bytes;
  for (const char32_t c : text) {
    append_utf8(c, bytes);
  }
  constexpr auto k_options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  const auto* from = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  const auto size = static_cast<utf8proc_ssize_t>(bytes.size());
  std::vector<utf8proc_int32_t> to(text.size() * 4);
  for (;;) {
    const utf8proc_ssize_t count = utf8proc_decompose(
        from, size, to.data(), static_cast<utf8proc_ssize_t>(to.size()), k_options);
    if (count <= static_cast<utf8proc_ssize_t>(to.size())) {
      return {to.begin(), to.begin() + std::max<utf8proc_ssize_t>(count, 0)};
    }
    to.resize(static_cast<std::size_t>(count));
  }
}

void decode(std::string_view text, std::u32string& to) {
  while (!text.empty()) {
    const dtrain::Utf8Char c = dtrain::decode_utf8(text);
    to += c.code;
    text.remove_prefix(std::max<std::size_t>(c.length, 1));
  }
}

void append_utf8(char32_t c, std::string& to) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  to.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

std::size_t invalid_utf8(std::string_view text) {
  constexpr std::uint64_t k_high_bits = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t word = 0;
    while (at + sizeof word <= text.size()) { // Eight of ASCII at a time.
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & k_high_bits) != 0) {
        break;
      }
      at += sizeof word;
    }
    if (at == text.size()) {
      break;
    }
    const std::size_t length = dtrain::decode_utf8(text.substr(at)).length;
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return std::string_view::npos;
}

} // namespace trainer::unicode
