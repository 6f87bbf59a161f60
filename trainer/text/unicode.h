// Unicode properties for tokenizers, from utf8proc's tables.
#pragma once

#include <string>
#include <string_view>

namespace trainer::unicode {

bool is_white_space(char32_t c); ///< The property White_Space.
bool is_letter(char32_t c);      ///< L*
bool is_number(char32_t c);      ///< N*
bool is_punctuation(char32_t c); ///< P*
bool is_mark(char32_t c);        ///< Mn, as accents are.
bool is_word(char32_t c);        ///< What \w matches: letters, marks, digits, _ and its like.
/// Cc, Cf, Co: control, format and private-use characters.
bool is_invisible(char32_t c);
/// A character of "CJK Unified Ideographs" and its extensions, each of which is a word in BERT.
bool is_ideograph(char32_t c);

/// Letter by letter, without regard to its neighbours.
void append_lower(char32_t c, std::u32string& to);
/// Canonical decomposition.
std::u32string decomposed(const std::u32string& text);

/// `text` is UTF-8.
void decode(std::string_view text, std::u32string& to);
void append_utf8(char32_t c, std::string& to);

/// Offset of the first byte that is not UTF-8; npos: all are.
std::size_t invalid_utf8(std::string_view text);

} // namespace trainer::unicode
