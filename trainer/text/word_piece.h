// BERT's tokenizer: words, cut into the longest pieces that the vocabulary has.
//
// Words are separated by white space; each punctuation mark and each ideograph is a word. A word
// such as "unaffable" is split greedily: the longest token that it begins with, "un", then the
// longest prefixed with ## that the rest begins with: "##aff", "##able". A word that cannot be
// split to its end, or has more than 100 characters, becomes [UNK].
#pragma once

#include <functional>

#include "trainer/text/tokenizer.h"

namespace trainer {

/// Text into BERT's words.
class BertWords {
 public:
  explicit BertWords(const TokenizerOptions& options) : options_(options) {}

  /// Calls take(word) for each, which is valid that long.
  template <typename Take>
  void split(std::string_view text, const Take& take) {
    normalise(text);
    cut();
    std::size_t at = 0;
    for (const std::size_t end : ends_) {
      take(std::string_view(bytes_).substr(at, end - at));
      at = end;
    }
  }

  /// Splits at ASCII white space, and calls take(piece) with each piece.
  template <typename Take>
  static void split_at_spaces(std::string_view text, const Take& take) {
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t first = at;
      while (at < text.size() && !is_space(text[at])) {
        ++at;
      }
      if (at > first) {
        take(text.substr(first, at - first));
      }
    }
  }

  /// The text in whose words split() cuts; valid until the next call.
  std::string_view normalised(std::string_view text);

 private:
  void normalise(std::string_view text);
  void cut();

  TokenizerOptions options_;
  std::u32string characters_;
  std::string normal_;
  std::string bytes_;             ///< The words, one behind the other.
  std::vector<std::size_t> ends_; ///< End of each word.
};

class WordPiece final : public Tokenizer {
 public:
  /// `path`: vocab.txt, a token a line.
  WordPiece(const std::string& path, const TokenizerOptions& options);
  /// `path` names the vocabulary in messages.
  WordPiece(Vocabulary vocabulary, const std::string& path, const TokenizerOptions& options);

  std::string decode(std::span<const TokenId> ids) const override;
  const char* kind() const override { return "WordPiece"; }

 private:
  void encode_plain(std::string_view text, std::vector<TokenId>& to) override;
  std::string_view normalised(std::string_view text) override { return words_.normalised(text); }
  void encode_word(std::string_view word, std::vector<TokenId>& to) const;

  BertWords words_;
  std::unordered_map<std::string_view, TokenId> continued_; ///< Keys without ##.
  std::size_t longest_ = 0;                                 ///< Token, in bytes.
};

/// Names of the special tokens, in the order in which a vocabulary begins with them.
const std::array<std::string, 5>& word_piece_special_names(); // [PAD] [UNK] [CLS] [SEP] [MASK]

} // namespace trainer
