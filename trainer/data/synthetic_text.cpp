#include "trainer/data/synthetic_text.h"

#include <algorithm>

#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_masked_percent = 15;

class SyntheticText final : public TokenSource {
 public:
  SyntheticText(std::size_t count, std::size_t length, bool is_causal, std::size_t vocabulary,
                std::uint64_t seed)
      : count_(count), length_(length), is_causal_(is_causal), vocabulary_(vocabulary),
        seed_(seed) {}

  std::size_t count() const override { return count_; }
  std::size_t length() const override { return length_; }
  std::size_t most_masked() const override {
    return is_causal_ ? length_ - 1 : std::max<std::size_t>(length_ * k_masked_percent / 100, 1);
  }
  const char* told() const override { return is_causal_ ? "tokens" : "masked tokens"; }
  std::size_t vocabulary() const override { return vocabulary_; }
  std::uint64_t digest() const override { return seed_ + count_ * length_ + vocabulary_; }

  /// Every so many tokens one is masked, from a place on that the position says.
  void read(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
            const TokenRow& to) const override {
    for (std::size_t i = 0; i < length_; ++i) {
      to.ids[i] = number(0, sample * length_ + i, vocabulary_);
    }
    *to.length = static_cast<std::int32_t>(length_);
    if (is_causal_) {
      return tell_next(length_, most_masked(), to);
    }
    const std::size_t apart = std::max<std::size_t>(length_ / most_masked(), 1);
    const auto first = static_cast<std::size_t>(number(1, seed + position, apart));
    for (std::size_t i = 0; i < most_masked(); ++i) {
      const std::size_t at = first + i * apart;
      to.masked[i] = static_cast<std::int32_t>(at);
      to.targets[i] = to.ids[at];
      to.ids[at] = 0;
    }
  }

 private:
  std::int32_t number(std::uint32_t what, std::uint64_t index, std::size_t below) const {
    const auto bits = random_at(seed_, RandomStream::synthetic_data, what, index);
    return static_cast<std::int32_t>(bits[0] % below);
  }

  std::size_t count_;
  std::size_t length_;
  bool is_causal_;
  std::size_t vocabulary_;
  std::uint64_t seed_;
};

} // namespace

Dataset synthetic_text(std::size_t count, std::size_t length, std::size_t vocabulary,
                       std::uint64_t seed, bool is_causal) {
  Dataset dataset;
  dataset.folder = "synthetic";
  dataset.train.text = std::make_shared<SyntheticText>(count, length, is_causal, vocabulary, seed);
  dataset.train.count = count;
  return dataset;
}

} // namespace trainer
