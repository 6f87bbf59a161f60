// A vocabulary of the user's own text: WordPiece's, or byte-level BPE's.
//
// It begins with the special tokens and the letters: of WordPiece the text's characters, each also
// in its form inside a word, ##x; of byte-level BPE the 256 bytes. Then, as often as there is room,
// the pair of tokens that is adjacent most often in words becomes a token; of equally frequent
// pairs, that whose numbers are least. So does `tokenizers`, but that it numbers the ##x by chance.
//
// Words are counted once and merged in place; a heap holds pairs by count, brought up to date when
// they come to its top; a pair knows the words it may be in. Costs: bytes of text for counting,
// then for each merge the words that have it.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trainer/text/byte_map.h"
#include "trainer/text/word_piece.h"

namespace trainer {

struct VocabularyTraining {
  std::size_t size = 30'522;   ///< Tokens at most.
  std::uint64_t least = 2;     ///< Least number of times that a pair must occur.
  std::size_t alphabet = 1000; ///< WordPiece's characters at most: the most frequent.
};

/// Called now and then with how many tokens there are; may be empty.
using VocabularyProgress = std::function<void(std::size_t)>;

/// Different words, and how often each occurs.
class WordCounts {
 public:
  void add(std::string_view word, std::uint64_t times = 1) {
    const auto [number, is_new] = words_.insert(word);
    if (is_new) {
      counts_.push_back(0);
    }
    counts_[number] += times;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(words_.size()); }
  std::string_view word(std::uint32_t number) const { return words_.key(number); }
  std::uint64_t count(std::uint32_t number) const { return counts_[number]; }

 private:
  ByteMap words_;
  std::vector<std::uint64_t> counts_;
};

class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(const TokenizerOptions& options) : words_(options) {}

  /// Counts the words of some text: UTF-8, whose ends are ends of words.
  void read(std::string_view text);

  /// The tokens.
  std::vector<std::string> train(const VocabularyTraining& training,
                                 const VocabularyProgress& progress = {});

 private:
  BertWords words_;
  WordCounts pieces_; ///< Words between spaces.
};

struct ByteBpeVocabulary {
  std::vector<std::string> tokens; ///< Special ones, the 256 bytes, then the merges in order.
  Merges merges;
};

class ByteBpeTrainer {
 public:
  static constexpr std::size_t k_bytes = 256;

  /// `special`: byte_bpe_special_names(), which outlive it.
  explicit ByteBpeTrainer(const std::vector<std::string>& special) : special_(special) {}

  /// Counts the pieces that ByteBpe cuts some text into; the ends of the text are ends of pieces.
  void read(std::string_view text);
  bool has_read_none() const { return pieces_.size() == 0; }

  ByteBpeVocabulary train(const VocabularyTraining& training,
                          const VocabularyProgress& progress = {}) const;

 private:
  const std::vector<std::string>& special_;
  WordCounts pieces_;
};

} // namespace trainer
