// Which tokens of a row a masked language model has to guess.
//
// Of a row's tokens, but those that begin and end a text, a share is taken ([0.15]): so many of
// them as the share of their number is, rounded up or down by chance so that the mean is right, but
// at least one. Of those some become a random token [0.1], some stay as they are [0.1], and the
// others become [MASK]. (HelloDeepSpeed's and RoBERTa's way.)
//
// All chance comes from the seed and the row's position in the endless stream of samples: a row is
// masked again in each epoch, alike on whatever rank reads it, and a run that goes on from a
// checkpoint masks as it would have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/text/vocabulary.h"

namespace trainer {

struct MaskingOptions {
  double mask = 0.15;  ///< Share of a row's tokens.
  double random = 0.1; ///< Of those: replaced by a random token.
  double keep = 0.1;   ///< Of those: left as they are.

  bool operator==(const MaskingOptions&) const = default;
};

class Masking {
 public:
  Masking(const MaskingOptions& options, const SpecialTokens& special, std::size_t vocabulary);

  /// How many of a row of so many tokens can be masked.
  std::size_t most(std::size_t tokens) const;

  /// Masks `tokens`, a row without its padding, in place. Where, ascending, goes to `positions` and
  /// what stood there to `labels`, each of most(tokens) at least. How many there are.
  std::size_t operator()(std::uint64_t seed, std::uint64_t position, std::span<TokenId> tokens,
                         std::span<std::int32_t> positions, std::span<TokenId> labels) const;

 private:
  MaskingOptions options_;
  TokenId mask_;
  TokenId first_;
  TokenId last_;
  std::vector<TokenId> words_; ///< All tokens but the special ones.
};

} // namespace trainer
