#include "trainer/strategy/parameter_server/partition.h"

#include <doctest/doctest.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_row = 16;

/// Of so many rows, from 160 on.
ArenaRange tensor(std::size_t rows) { return {160, 160 + rows * k_row}; }

std::vector<std::size_t> rows_of(const std::vector<ArenaRange>& ranges) {
  std::vector<std::size_t> rows;
  for (const ArenaRange& range : ranges) {
    rows.push_back(range.size() / k_row);
  }
  return rows;
}

using Rows = std::vector<std::size_t>;

TEST_CASE("a fixed partitioner cuts 13 rows into 3, 3, 3, 2, 2 as TensorFlow does") {
  const auto ranges = partition(tensor(13), {Partitioner::Kind::fixed, 5, 0});
  CHECK(rows_of(ranges) == Rows{3, 3, 3, 2, 2});
  CHECK(ranges[3].first == 160 + 9 * k_row);
}

TEST_CASE("a fixed partitioner makes no more shards than rows") {
  CHECK(rows_of(partition(tensor(2), {Partitioner::Kind::fixed, 5, 0})) == Rows{1, 1});
}

TEST_CASE("a min-size partitioner leaves no shard below its size") {
  const ArenaRange megabyte = tensor(16'000);
  CHECK(partition(megabyte, {Partitioner::Kind::min_size, 8, 256 << 10}).size() == 3);
  CHECK(partition(megabyte, {Partitioner::Kind::min_size, 2, 256 << 10}).size() == 2);
  CHECK(partition(megabyte, {Partitioner::Kind::min_size, 8, 2 << 20}).size() == 1);
}

TEST_CASE("a max-size partitioner leaves no shard above its size, but a row is whole") {
  const ArenaRange megabyte = tensor(16'000);
  for (const ArenaRange& range : partition(megabyte, {Partitioner::Kind::max_size, 0, 100 << 10})) {
    CHECK(range.size() * sizeof(float) <= 100 << 10);
  }
  CHECK(partition(megabyte, {Partitioner::Kind::max_size, 0, 100 << 10}).size() == 10);
  CHECK(partition(megabyte, {Partitioner::Kind::max_size, 4, 100 << 10}).size() == 4);
  CHECK(partition(megabyte, {Partitioner::Kind::max_size, 0, 1}).size() == 16'000);
}

TEST_CASE("servers hold equal bytes where the one large variable is cut") {
  const std::vector<ArenaRange> tensors = {{0, 16}, {16, 2064}, {2064, 2192}, {2192, 102'544}};
  const auto placed = place(tensors, parse_partitioner("fixed", 3), 3);
  REQUIRE(placed.size() == 3);
  std::size_t total = 0;
  for (const auto& ranges : placed) {
    std::size_t count = 0;
    for (const ArenaRange& range : ranges) {
      count += range.size();
    }
    total += count;
    CHECK(count == doctest::Approx(102544.0 / 3).epsilon(0.01));
  }
  CHECK(total == 102544);
}

TEST_CASE("the largest shards are placed first, so that small ones even out what is left") {
  const auto placed = place({{0, 16}, {16, 32}, {32, 48}, {48, 96}}, {}, 2);
  REQUIRE(placed.size() == 2);
  CHECK(placed[0] == std::vector<ArenaRange>{{48, 96}});
  CHECK(placed[1].size() == 3);
}

TEST_CASE("partitioners are parsed, and others refused") {
  CHECK(parse_partitioner("min-size", 4).bytes == 256 << 10);
  CHECK(parse_partitioner("min-size:1000:7", 4).shards == 7);
  CHECK(parse_partitioner("max-size:1000", 4).shards == 0);
  CHECK(parse_partitioner("fixed:6", 4).shards == 6);
  for (const char* wrong : {"", "fixd", "fixed:", "fixed:0", "fixed:1:2", "max-size", "none:1",
                            "min-size:x", "max-size:1:2:3", "fixed:99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_partitioner(wrong, 4), UsageError);
  }
}

} // namespace
} // namespace trainer
