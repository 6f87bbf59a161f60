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
  MaskedRows(TokenRows rows, const TokenSet& set, const MaskingOptions& masking)
      : rows_(std::move(rows)), masking_(masking, set.special, set.vocabulary),
        vocabulary_(set.vocabulary) {
    const std::array<double, 3> shares = {masking.mask, masking.random, masking.keep};
    digest_ =
        xxh64({reinterpret_cast<const std::uint8_t*>(shares.data()), sizeof shares}, set.digest);
  }

  std::size_t count() const override { return rows_.count(); }
  std::size_t length() const override { return rows_.length(); }
  std::size_t most_masked() const override { return masking_.most(length()); }
  const char* told() const override { return "masked tokens"; }
  std::size_t vocabulary() const override { return vocabulary_; }
  std::uint64_t digest() const override { return digest_; }

  void read(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
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

 private:
  TokenRows rows_;
  Masking masking_;
  std::size_t vocabulary_;
  std::uint64_t digest_ = 0;
};

/// Every token but a row's first is to be told, by those in front of it.
class CausalRows final : public TokenSource {
 public:
  CausalRows(TokenRows rows, const TokenSet& set)
      : rows_(std::move(rows)), vocabulary_(set.vocabulary), digest_(set.digest) {}

  std::size_t count() const override { return rows_.count(); }
  std::size_t length() const override { return rows_.length(); }
  std::size_t most_masked() const override { return length() - 1; }
  const char* told() const override { return "tokens"; }
  std::size_t vocabulary() const override { return vocabulary_; }
  std::uint64_t digest() const override { return digest_; }

  void read(std::uint64_t sample, std::uint64_t /*seed*/, std::uint64_t /*position*/,
            const TokenRow& to) const override {
    const std::size_t length = rows_.read(sample, {to.ids, this->length()});
    *to.length = static_cast<std::int32_t>(length);
    tell_next(length, most_masked(), to);
  }

 private:
  TokenRows rows_;
  std::size_t vocabulary_;
  std::uint64_t digest_;
};

Split split_of(const TokenRows& rows, const TokenSet& set, bool is_causal,
               const MaskingOptions& masking) {
  Split split;
  split.count = rows.count();
  if (is_causal) {
    split.text = std::make_shared<CausalRows>(rows, set);
  } else {
    split.text = std::make_shared<MaskedRows>(rows, set, masking);
  }
  return split;
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
  dataset.train = split_of(set.train, set, is_causal, masking);
  dataset.test = split_of(set.held_out, set, is_causal, masking);
  return dataset;
}

} // namespace trainer
