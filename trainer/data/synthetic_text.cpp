#include "trainer/data/synthetic_text.h"

#include <algorithm>

#include "trainer/data/token_source.h"
#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_masked_percent = 15;

class SyntheticText final : public TokenSource {
 public:
  SyntheticText(std::size_t count, std::size_t length, bool is_causal, std::size_t vocabulary,
                std::uint64_t seed)
      : TokenSource(count, length,
                    is_causal ? length - 1
                              : std::max<std::size_t>(length * k_masked_percent / 100, 1),
                    vocabulary, is_causal ? "tokens" : "masked tokens"),
        is_causal_(is_causal), seed_(seed) {}

  std::uint64_t digest() const override { return seed_ + count() * length() + kind().vocabulary; }

 private:
  /// One token in every so many is masked, starting at an offset that depends on the position.
  void read_row(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
                const TokenRow& to) const override {
    for (std::size_t i = 0; i < length(); ++i) {
      to.ids[i] = number(0, sample * length() + i, kind().vocabulary);
    }
    *to.length = static_cast<std::int32_t>(length());
    if (is_causal_) {
      return set_next_targets(length(), most_masked(), to);
    }
    const std::size_t apart = std::max<std::size_t>(length() / most_masked(), 1);
    const auto first = static_cast<std::size_t>(number(1, seed + position, apart));
    for (std::size_t i = 0; i < most_masked(); ++i) {
      const std::size_t at = first + i * apart;
      to.masked[i] = static_cast<std::int32_t>(at);
      to.targets[i] = to.ids[at];
      to.ids[at] = 0;
    }
  }

  std::int32_t number(std::uint32_t what, std::uint64_t index, std::size_t below) const {
    const auto bits = random_at(seed_, RandomStream::synthetic_data, what, index);
    return static_cast<std::int32_t>(bits[0] % below);
  }

  bool is_causal_;
  std::uint64_t seed_;
};

} // namespace

Dataset synthetic_text(std::size_t count, std::size_t length, std::size_t vocabulary,
                       std::uint64_t seed, bool is_causal) {
  Dataset dataset;
  dataset.folder = "synthetic";
  dataset.train = std::shared_ptr<SampleSource>(
      std::make_shared<SyntheticText>(count, length, is_causal, vocabulary, seed));
  return dataset;
}

} // namespace trainer
