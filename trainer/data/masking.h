// Which tokens of a row a masked language model has to predict.
//
// A share [0.15] of a row's tokens, without those that begin and end a text, is chosen: that share
// of their number, rounded up or down at random so that the mean is right, but at least one. Of the
// chosen tokens some become a random token [0.1], some stay as they are [0.1], and the others
// become [MASK]. (As in HelloDeepSpeed and RoBERTa.)
//
// Random numbers depend only on the seed and the row's position in the endless stream of samples: a
// row is masked differently in each epoch, but the same on any rank, and a resumed run masks as the
// uninterrupted one would have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/text/vocabulary.h"

namespace trainer {

struct MaskingOptions {
  double mask = 0.15;  ///< Share of a row's tokens.
  double random = 0.1; ///< Share of the chosen tokens that become a random token.
  double keep = 0.1;   ///< Share of the chosen tokens that stay as they are.

  bool operator==(const MaskingOptions&) const = default;
};

class Masking {
 public:
  Masking(const MaskingOptions& options, const SpecialTokens& special, std::size_t vocabulary);

  /// Most tokens that are chosen in a row of `tokens`.
  std::size_t most(std::size_t tokens) const;

  /// Masks `tokens`, a row without its padding, in place. Writes the places of the chosen tokens,
  /// ascending, to `positions`, and their original values to `labels`; both have room for
  /// most(tokens.size()). Returns how many there are.
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
