// How far apart what two runs computed is.
#pragma once

#include <cmath>
#include <cstddef>

#include <doctest/doctest.h>

namespace trainer::test {

/// The largest |a[i] - b[i]|, a NaN where there is one. Fails the test where the sizes differ.
template <typename A, typename B>
double largest_difference(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    largest = std::isnan(largest) || difference <= largest ? largest : difference;
  }
  return largest;
}

} // namespace trainer::test
