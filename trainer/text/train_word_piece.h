// A WordPiece vocabulary of the user's own text.
//
// Begins with the special tokens and the text's characters, each also in its form inside a word,
// ##x. Then, as often as the vocabulary has room, the pair of tokens that is adjacent most often in
// words becomes a token; of equally frequent pairs, that whose numbers are least. So does
// `tokenizers`, but that it numbers the ##x by chance.
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

struct WordPieceTraining {
  std::size_t size = 30'522;   ///< Tokens at most.
  std::uint64_t least = 2;     ///< Least number of times that a pair must occur.
  std::size_t alphabet = 1000; ///< Characters at most: the most frequent.
};

class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(const TokenizerOptions& options) : words_(options) {}

  /// Counts the words of some text: UTF-8, whose ends are ends of words.
  void read(std::string_view text);

  /// The tokens. `progress` is called now and then with how many there are.
  std::vector<std::string> train(const WordPieceTraining& training,
                                 const std::function<void(std::size_t)>& progress = {});

 private:
  BertWords words_;
  ByteMap pieces_; ///< Words between spaces.
  std::vector<std::uint64_t> counts_;
};

} // namespace trainer
