#include "trainer/optim/precision.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "trainer/device/halves.h"
#include "trainer/random.h"

using namespace trainer;

TEST_CASE("values are rounded as one by one, and it is said whether all are finite") {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    std::vector<float> from(1003);
    for (std::size_t i = 0; i < from.size(); ++i) { // Of all sizes that both have, and 0.
      const auto bits = random_at(3, RandomStream::weights, 0, i);
      from[i] = std::ldexp(2 * uniform(bits[0]) - 1, static_cast<int>(bits[1] % 30) - 14);
    }
    from[7] = 0;
    std::vector<float> to(from.size());
    CHECK(round_to(precision, from, to));
    for (std::size_t i = 0; i < from.size(); ++i) {
      CHECK(to[i] == (precision == Precision::bf16 ? Bf16::widen(Bf16::narrow(from[i]))
                                                   : Fp16::widen(Fp16::narrow(from[i]))));
    }
    for (const float odd : {INFINITY, -INFINITY, NAN}) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{500}, from.size() - 1}) {
        std::vector<float> values = from;
        values[at] = odd;
        CHECK_FALSE(round_to(precision, values, values));
        CHECK((std::isnan(odd) ? std::isnan(values[at]) : values[at] == odd));
      }
    }
  }
}

TEST_CASE("what is too large for 16 bits is infinite") {
  std::vector<float> values = {65519, 65520, -65520, 3e38F};
  CHECK(round_to(Precision::bf16, {values.data(), 3}, {values.data(), 3}));
  values = {65519, 65520, -65520, 3e38F};
  CHECK_FALSE(round_to(Precision::fp16, values, values));
  CHECK(values == std::vector<float>{65504, INFINITY, -INFINITY, INFINITY});
  values = {3.4e38F};
  CHECK_FALSE(round_to(Precision::bf16, values, values));
}
