#include "trainer/text/word_piece.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

constexpr std::string_view k_continued = "##";
constexpr std::size_t k_longest_word = 100; ///< Characters.

Vocabulary read_word_pieces(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw DataError(fmt::format("{}: cannot read the vocabulary: {}", path, std::strerror(errno)));
  }
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    tokens.push_back(std::move(line));
  }
  return Vocabulary(std::move(tokens));
}

bool is_ascii_punctuation(char32_t c) {
  return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
         !(c >= 'a' && c <= 'z');
}

bool is_line_space(char32_t c) { return c == '\t' || c == '\n' || c == '\r'; }

} // namespace

const std::array<std::string, 5>& word_piece_special_names() {
  static const std::array<std::string, 5> names = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  return names;
}

void BertWords::normalise(std::string_view text) {
  std::u32string decoded;
  unicode::decode(text, decoded);
  characters_.clear();
  for (const char32_t c : decoded) {
    if (options_.clean &&
        (c == 0 || c == 0xFFFD || (unicode::is_invisible(c) && !is_line_space(c)))) {
      continue;
    }
    if (options_.split_cjk && unicode::is_ideograph(c)) {
      characters_ += {U' ', c, U' '};
    } else {
      characters_ += c;
    }
  }
  if (options_.strip_accents.value_or(options_.lowercase)) {
    characters_ = unicode::decomposed(characters_);
    std::erase_if(characters_, unicode::is_mark);
  }
  if (options_.lowercase) {
    std::u32string lower;
    for (const char32_t c : characters_) {
      unicode::append_lower(c, lower);
    }
    characters_ = std::move(lower);
  }
}

std::string_view BertWords::normalised(std::string_view text) {
  normalise(text);
  normal_.clear();
  for (const char32_t c : characters_) {
    unicode::append_utf8(options_.clean && unicode::is_white_space(c) ? U' ' : c, normal_);
  }
  return normal_;
}

void BertWords::cut() {
  bytes_.clear();
  ends_.clear();
  const auto end_word = [&] {
    if (bytes_.size() > (ends_.empty() ? 0 : ends_.back())) {
      ends_.push_back(bytes_.size());
    }
  };
  for (const char32_t c : characters_) {
    if (unicode::is_white_space(c)) {
      end_word();
    } else if (is_ascii_punctuation(c) || unicode::is_punctuation(c)) {
      end_word();
      unicode::append_utf8(c, bytes_);
      end_word();
    } else {
      unicode::append_utf8(c, bytes_);
    }
  }
  end_word();
}

WordPiece::WordPiece(const std::string& path, const TokenizerOptions& options)
    : WordPiece(read_word_pieces(path), path, options) {}

WordPiece::WordPiece(Vocabulary vocabulary, const std::string& path,
                     const TokenizerOptions& options)
    : Tokenizer(std::move(vocabulary), path, word_piece_special_names(), false), words_(options) {
  for (const std::string& token : this->vocabulary().tokens()) {
    longest_ = std::max(longest_, token.size());
    if (token.starts_with(k_continued)) {
      continued_[std::string_view(token).substr(k_continued.size())] =
          *this->vocabulary().find(token);
    }
  }
}

void WordPiece::encode_plain(std::string_view text, std::vector<TokenId>& to) {
  const auto cut = [this](std::string_view piece, std::vector<TokenId>& ids) {
    words_.split(piece, [&](std::string_view word) { encode_word(word, ids); });
  };
  BertWords::split_at_spaces(text,
                             [&](std::string_view piece) { encode_remembered(piece, to, cut); });
}

void WordPiece::encode_word(std::string_view word, std::vector<TokenId>& to) const {
  const auto is_first_byte = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  };
  const std::size_t before = to.size();
  bool is_known =
      word.size() <= k_longest_word || std::count_if(word.begin(), word.end(), is_first_byte) <=
                                           static_cast<std::ptrdiff_t>(k_longest_word);
  for (std::size_t at = 0; is_known && at < word.size();) {
    std::size_t size = std::min(word.size() - at, longest_);
    std::optional<TokenId> id;
    for (; size > 0; --size) {
      if (at + size < word.size() && !is_first_byte(word[at + size])) {
        continue;
      }
      const std::string_view piece = word.substr(at, size);
      if (at == 0) {
        id = vocabulary().find(piece);
      } else if (const auto found = continued_.find(piece); found != continued_.end()) {
        id = found->second;
      }
      if (id && is_of_model(*id)) {
        to.push_back(*id);
        break;
      }
      id.reset();
    }
    is_known = id.has_value();
    at += size;
  }
  if (!is_known) {
    to.resize(before);
    to.push_back(special().unknown);
  }
}

std::string WordPiece::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    const std::string& token = vocabulary().token(id);
    if (is_special(id) && id != special().unknown) {
      continue;
    }
    if (token.starts_with(k_continued) && !text.empty()) {
      text += token.substr(k_continued.size());
    } else {
      text += (text.empty() ? "" : " ") + token;
    }
  }
  return text;
}

} // namespace trainer
