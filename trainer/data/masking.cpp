#include "trainer/data/masking.h"

#include <algorithm>
#include <array>

#include "trainer/random.h"

namespace trainer {
namespace {

/// Random numbers that depend only on the seed and the row.
class RowRandom {
 public:
  RowRandom(std::uint64_t seed, std::uint64_t position) : seed_(seed), position_(position) {}

  std::uint32_t bits() {
    if (next_ % 4 == 0) {
      numbers_ = random_at(seed_, RandomStream::masking, next_ / 4, position_);
    }
    return numbers_[next_++ % 4];
  }
  /// A number below `end`, by multiplication instead of remainder (Lemire); the bias is end / 2^32.
  std::uint32_t below(std::size_t end) {
    return static_cast<std::uint32_t>(std::uint64_t{bits()} * end >> 32);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t position_;
  std::uint32_t next_ = 0;
  std::array<std::uint32_t, 4> numbers_{};
};

constexpr std::size_t k_ends = 2; ///< The first and last token of a row are never masked.

} // namespace

Masking::Masking(const MaskingOptions& options, const SpecialTokens& special,
                 std::size_t vocabulary)
    : options_(options), mask_(special.mask), first_(special.first), last_(special.last) {
  for (TokenId id = 0; static_cast<std::size_t>(id) < vocabulary; ++id) {
    if (!special.contains(id)) {
      words_.push_back(id);
    }
  }
}

std::size_t Masking::most(std::size_t tokens) const {
  if (tokens <= k_ends || words_.empty()) {
    return 0;
  }
  const auto inner = static_cast<double>(tokens - k_ends);
  return std::min(tokens - k_ends, static_cast<std::size_t>(options_.mask * inner) + 1);
}

std::size_t Masking::operator()(std::uint64_t seed, std::uint64_t position,
                                std::span<TokenId> tokens, std::span<std::int32_t> positions,
                                std::span<TokenId> labels) const {
  std::vector<std::int32_t>
      inner; // Positions that may be masked: a row of several texts has separators between them.
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    if (tokens[i] != first_ && tokens[i] != last_) {
      inner.push_back(static_cast<std::int32_t>(i));
    }
  }
  if (inner.empty() || words_.empty()) {
    return 0;
  }
  RowRandom random(seed, position);
  const double wanted =
      options_.mask * static_cast<double>(inner.size()) + double{uniform(random.bits())};
  const std::size_t count =
      std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, inner.size());

  // Floyd's sampling: of a growing range, take one that is not taken yet, else its last.
  for (std::size_t end = inner.size() - count, taken = 0; end < inner.size(); ++end, ++taken) {
    const std::int32_t chosen = inner[random.below(end + 1)];
    const auto stop = positions.begin() + static_cast<std::ptrdiff_t>(taken);
    positions[taken] = std::find(positions.begin(), stop, chosen) == stop ? chosen : inner[end];
  }
  std::sort(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    TokenId& token = tokens[static_cast<std::size_t>(positions[i])];
    labels[i] = token;
    const double lot = double{uniform(random.bits())};
    if (lot < options_.random) {
      token = words_[random.below(words_.size())];
    } else if (lot >= options_.random + options_.keep) {
      token = mask_;
    }
  }
  return count;
}

} // namespace trainer
