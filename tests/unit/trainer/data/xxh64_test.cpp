#include "trainer/data/xxh64.h"

#include <string>

#include <doctest/doctest.h>

using namespace trainer;

namespace {

std::uint64_t hash(const std::string& text, std::uint64_t seed = 0) {
  return xxh64({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, seed);
}

} // namespace

TEST_CASE("known texts have the sums that xxHash gives them") {
  CHECK(hash("") == 0xEF46DB3751D8E999);
  CHECK(hash("a") == 0xD24EC4F1A98C6E5B);
  CHECK(hash("abc") == 0x44BC2CF5AD770999);
  CHECK(hash("Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1);
}

TEST_CASE("a text in parts has the sum of the whole, wherever it is cut") {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += static_cast<char>(i * 7);
  }
  for (std::size_t step = 1; step < 80; ++step) {
    Xxh64 sum(9);
    for (std::size_t at = 0; at < text.size(); at += step) {
      const std::string part = text.substr(at, step);
      sum.add({reinterpret_cast<const std::uint8_t*>(part.data()), part.size()});
    }
    REQUIRE(sum.digest() == hash(text, 9));
  }
}
