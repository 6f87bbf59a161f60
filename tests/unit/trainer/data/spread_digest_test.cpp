#include "trainer/data/spread_digest.h"

#include <doctest/doctest.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

using namespace trainer;

namespace {

constexpr std::size_t k_most = k_spread_block * k_spread_blocks;

std::size_t bytes_of(const std::vector<SpreadBlock>& blocks) {
  return std::accumulate(
      blocks.begin(), blocks.end(), std::size_t{0},
      [](std::size_t sum, const SpreadBlock& block) { return sum + block.size; });
}

} // namespace

TEST_CASE("of any data at most 64 MiB are read, the first and the last bytes among them") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, k_most, k_most + 1,
                                 std::size_t{100'000'000'003}, SIZE_MAX / 2}) {
    CAPTURE(size);
    const std::vector<SpreadBlock> blocks = spread_blocks(size);
    CHECK(bytes_of(blocks) == std::min(size, k_most));
    CHECK(blocks.front().offset == 0);
    CHECK(blocks.back().offset + blocks.back().size == size);
    CHECK(std::is_sorted(blocks.begin(), blocks.end(),
                         [](const SpreadBlock& one, const SpreadBlock& other) {
                           return one.offset < other.offset;
                         }));
  }
}

TEST_CASE("a digest of large data reads its blocks alone, and tells each from another") {
  // What lies between the blocks' pages cannot be read.
  constexpr std::size_t k_page = 4096;
  constexpr std::size_t k_size = std::size_t{1} << 30;
  void* const memory = mmap(nullptr, k_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const bytes = static_cast<std::uint8_t*>(memory);
  const std::vector<SpreadBlock> blocks = spread_blocks(k_size);
  for (const SpreadBlock& block : blocks) {
    const std::size_t first = block.offset / k_page * k_page;
    REQUIRE(mprotect(bytes + first, block.offset + block.size - first, PROT_READ | PROT_WRITE) ==
            0);
  }
  const std::span<const std::uint8_t> all(bytes, k_size);
  const std::uint64_t before = spread_digest(all, 0);
  CHECK(spread_digest(all, 0) == before);
  CHECK(spread_digest(all, 1) != before);
  for (const std::size_t i : {std::size_t{0}, std::size_t{500}, blocks.size() - 1}) {
    bytes[blocks[i].offset + blocks[i].size - 1] ^= 1;
    CHECK(spread_digest(all, 0) != before);
    bytes[blocks[i].offset + blocks[i].size - 1] ^= 1;
  }
  CHECK(spread_digest(all, 0) == before);
  munmap(memory, k_size);
}

TEST_CASE("large data that were cut off, or whose halves changed places, have another digest") {
  std::vector<std::uint8_t> bytes(k_most + k_most / 2);
  for (std::size_t i = 0; i < bytes.size(); i += 512) {
    bytes[i] = static_cast<std::uint8_t>(i / 512 % 251);
  }
  const std::uint64_t before = spread_digest(bytes, 0);
  CHECK(spread_digest({bytes.data(), bytes.size() - 784}, 0) != before);
  std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2),
              bytes.end());
  CHECK(spread_digest(bytes, 0) != before);
}
