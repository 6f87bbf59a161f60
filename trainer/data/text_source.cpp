#include "trainer/data/text_source.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "trainer/data/token_shards.h"
#include "trainer/data/token_source.h"
#include "trainer/data/xxh64.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

class MaskedRows final : public TokenSource {
 public:
  MaskedRows(TokenRows rows, const TokenSet& set, const Masking& masking, std::uint64_t digest)
      : TokenSource(rows.count(), rows.length(), masking.most(rows.length()), set.vocabulary,
                    "masked tokens"),
        rows_(std::move(rows)), masking_(masking), digest_(digest) {}

  std::uint64_t digest() const override { return digest_; }

 private:
  void read_row(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
                const TokenRow& to) const override {
    const std::span<TokenId> ids(to.ids, length());
    const std::span<std::int32_t> masked(to.masked, most_masked());
    const std::span<TokenId> targets(to.targets, most_masked());
    const std::size_t length = rows_.read(sample, ids);
    const std::size_t count = masking_(seed, position, ids.first(length), masked, targets);
    *to.length = static_cast<std::int32_t>(length);
    std::fill(masked.begin() + static_cast<std::ptrdiff_t>(count), masked.end(), -1);
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(count), targets.end(), 0);
  }

  TokenRows rows_;
  Masking masking_;
  std::uint64_t digest_;
};

/// Predicts every token of a row but the first, from the tokens before it.
class CausalRows final : public TokenSource {
 public:
  CausalRows(TokenRows rows, const TokenSet& set)
      : TokenSource(rows.count(), rows.length(), rows.length() - 1, set.vocabulary, "tokens"),
        rows_(std::move(rows)), digest_(set.digest) {}

  std::uint64_t digest() const override { return digest_; }

 private:
  void read_row(std::uint64_t sample, std::uint64_t /*seed*/, std::uint64_t /*position*/,
                const TokenRow& to) const override {
    const std::size_t length = rows_.read(sample, {to.ids, this->length()});
    *to.length = static_cast<std::int32_t>(length);
    set_next_targets(length, most_masked(), to);
  }

  TokenRows rows_;
  std::uint64_t digest_;
};

std::shared_ptr<SampleSource> source_of(const TokenRows& rows, const TokenSet& set, bool is_causal,
                                        const MaskingOptions& masking) {
  if (is_causal) {
    return std::make_shared<CausalRows>(rows, set);
  }
  const std::array<double, 3> shares = {masking.mask, masking.random, masking.keep};
  const std::uint64_t digest =
      xxh64({reinterpret_cast<const std::uint8_t*>(shares.data()), sizeof shares}, set.digest);
  return std::make_shared<MaskedRows>(rows, set, Masking(masking, set.special, set.vocabulary),
                                      digest);
}

} // namespace

Dataset load_text(const std::string& folder, bool is_causal, const MaskingOptions& masking) {
  const TokenSet set = open_token_set(folder);
  if (!is_causal && !set.special.has_mask()) {
    throw DataError(
        fmt::format("{}: is in GPT-2's tokens, of which none is a mask; train with "
                    "--model=gpt2, or tokenize with a vocabulary of BERT's or RoBERTa's",
                    folder));
  }
  Dataset dataset;
  dataset.folder = folder;
  dataset.special = set.special;
  dataset.train = source_of(set.train, set, is_causal, masking);
  dataset.test = source_of(set.held_out, set, is_causal, masking);
  return dataset;
}

} // namespace trainer
