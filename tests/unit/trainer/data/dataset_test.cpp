#include "trainer/data/dataset.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/data/image_source.h"

using namespace trainer;

namespace {

using Values = std::vector<std::uint8_t>;

constexpr std::size_t k_side = 10;
constexpr std::size_t k_count = 1000;

Values values(std::size_t count, std::size_t factor) {
  Values all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = static_cast<std::uint8_t>(i * factor % 251);
  }
  return all;
}

std::uint64_t digest_of(Values images, Values labels, std::size_t height = k_side) {
  Dataset data;
  data.train =
      image_source({std::move(images), std::move(labels), height, k_side * k_side / height});
  return digest(data);
}

} // namespace

TEST_CASE("a data set's digest changes with any pixel or label, and with nothing else") {
  const Values images = values(k_count * k_side * k_side, 7);
  const Values labels = values(k_count, 3);
  const std::uint64_t before = digest_of(images, labels);
  CHECK(digest_of(images, labels) == before);
  for (const std::size_t at : {std::size_t{0}, std::size_t{50'000}, images.size() - 1}) {
    Values other = images;
    other[at] ^= 1;
    CHECK(digest_of(other, labels) != before);
  }
  for (const std::size_t at : {std::size_t{0}, labels.size() / 2, labels.size() - 1}) {
    Values other = labels;
    other[at] ^= 1;
    CHECK(digest_of(images, other) != before);
  }
}

TEST_CASE(
    "a data set's digest changes with the order of its files, their sizes and images' shape") {
  const Values images = values(k_count * k_side * k_side, 7);
  const Values labels = values(k_count, 3);
  const std::uint64_t before = digest_of(images, labels);
  Values other_images = images;
  Values other_labels = labels;
  std::rotate(other_images.begin(), other_images.begin() + 400 * k_side * k_side,
              other_images.end());
  std::rotate(other_labels.begin(), other_labels.begin() + 400, other_labels.end());
  CHECK(digest_of(other_images, other_labels) != before);
  CHECK(digest_of(Values(images.begin(), images.end() - k_side * k_side),
                  Values(labels.begin(), labels.end() - 1)) != before);
  CHECK(digest_of(images, labels, k_side / 2) != before);
}
