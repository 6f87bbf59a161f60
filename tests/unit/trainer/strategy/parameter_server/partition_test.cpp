#include "trainer/strategy/parameter_server/partition.h"

#include <doctest/doctest.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

std::vector<std::size_t> rows_of(const std::vector<Shard>& shards) {
  std::vector<std::size_t> rows;
  for (const Shard& shard : shards) {
    rows.push_back(shard.rows);
  }
  return rows;
}

using Rows = std::vector<std::size_t>;

TEST_CASE("a fixed partitioner cuts 13 rows into 3, 3, 3, 2, 2 as TensorFlow does") {
  const auto shards = partition({"v", 100, 13, 4}, {Partitioner::Kind::fixed, 5, 0});
  CHECK(rows_of(shards) == Rows{3, 3, 3, 2, 2});
  CHECK(shards[3].first_row == 9);
  CHECK(shards[3].offset == 100 + 9 * 4);
}

TEST_CASE("a fixed partitioner makes no more shards than rows") {
  CHECK(rows_of(partition({"v", 0, 2, 4}, {Partitioner::Kind::fixed, 5, 0})) == Rows{1, 1});
}

TEST_CASE("a min-size partitioner leaves no shard below its size") {
  // 1000 rows of 1 KiB.
  const Variable variable{"v", 0, 1000, 256};
  CHECK(partition(variable, {Partitioner::Kind::min_size, 8, 256 << 10}).size() == 3);
  CHECK(partition(variable, {Partitioner::Kind::min_size, 2, 256 << 10}).size() == 2);
  CHECK(partition(variable, {Partitioner::Kind::min_size, 8, 2 << 20}).size() == 1);
}

TEST_CASE("a max-size partitioner leaves no shard above its size, but a row is whole") {
  const Variable variable{"v", 0, 1000, 256};
  for (const Shard& shard : partition(variable, {Partitioner::Kind::max_size, 0, 100 << 10})) {
    CHECK(shard.count() * sizeof(float) <= 100 << 10);
  }
  CHECK(partition(variable, {Partitioner::Kind::max_size, 0, 100 << 10}).size() == 10);
  CHECK(partition(variable, {Partitioner::Kind::max_size, 4, 100 << 10}).size() == 4);
  CHECK(partition(variable, {Partitioner::Kind::max_size, 0, 1}).size() == 1000);
}

TEST_CASE("servers hold equal bytes where the one large variable is cut") {
  const std::vector<Variable> variables = {{"output.bias", 0, 1, 16},
                                           {"output.weight", 16, 128, 16},
                                           {"hidden.bias", 2064, 8, 16},
                                           {"hidden.weight", 2192, 6272, 16}};
  const auto placed = place(variables, parse_partitioner("fixed", 3), 3);
  REQUIRE(placed.size() == 3);
  std::size_t total = 0;
  for (const auto& shards : placed) {
    std::size_t count = 0;
    for (const Shard& shard : shards) {
      count += shard.count();
    }
    total += count;
    CHECK(count == doctest::Approx(102544.0 / 3).epsilon(0.01));
  }
  CHECK(total == 102544);
}

TEST_CASE("the largest shards are placed first, so that small ones even out what is left") {
  const auto placed =
      place({{"a", 0, 1, 1}, {"b", 1, 1, 1}, {"c", 2, 1, 1}, {"d", 3, 1, 3}}, {}, 2);
  REQUIRE(placed.size() == 2);
  REQUIRE(placed[0].size() == 1);
  CHECK(placed[0][0].variable == "d");
  CHECK(placed[1].size() == 3);
}

TEST_CASE("a server's sparse shards come after its dense ones") {
  const auto placed = place({{"embedding", 0, 10, 4, true}, {"weight", 40, 10, 4}}, {}, 1);
  CHECK(placed[0][0].variable == "weight");
  CHECK(placed[0][1].variable == "embedding");
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
