#include "trainer/strategy/parameter_server/partition.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/strategy/shards.h"

namespace trainer {
namespace {

constexpr std::size_t k_default_min_bytes = std::size_t{256} << 10;
constexpr std::size_t k_most = std::size_t{1} << 40;

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(fmt::format("--partitioner={}: use none, fixed[:SHARDS], "
                               "min-size[:BYTES[:SHARDS]] or max-size:BYTES[:SHARDS]",
                               text));
}

std::size_t range_count(std::size_t rows, const Partitioner& partitioner) {
  constexpr std::size_t k_row_bytes = k_granule * sizeof(float);
  std::size_t count = 1;
  switch (partitioner.kind) {
  case Partitioner::Kind::none:
    break;
  case Partitioner::Kind::fixed:
    count = partitioner.shards;
    break;
  case Partitioner::Kind::min_size:
    count = std::min(partitioner.shards, rows * k_row_bytes / partitioner.bytes);
    break;
  case Partitioner::Kind::max_size: {
    const std::size_t rows_each = std::max<std::size_t>(partitioner.bytes / k_row_bytes, 1);
    count = (rows + rows_each - 1) / rows_each;
    if (partitioner.shards > 0) {
      count = std::min(count, partitioner.shards);
    }
    break;
  }
  }
  return std::clamp<std::size_t>(count, 1, std::max<std::size_t>(rows, 1));
}

} // namespace

Partitioner parse_partitioner(const std::string& text, std::size_t servers) {
  std::vector<std::size_t> numbers;
  const std::size_t name_end = std::min(text.find(':'), text.size());
  for (std::size_t at = name_end; at < text.size();) {
    const std::size_t end = std::min(text.find(':', at + 1), text.size());
    std::size_t number = 0;
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + at + 1, last, number);
    if (error != std::errc() || stop != last || number < 1 || number > k_most) {
      refuse(text);
    }
    numbers.push_back(number);
    at = end;
  }
  const auto number_or = [&](std::size_t i, std::size_t fallback) {
    return i < numbers.size() ? numbers[i] : fallback;
  };
  const std::string name = text.substr(0, name_end);
  if (name == "none" && numbers.empty()) {
    return {};
  }
  if (name == "fixed" && numbers.size() <= 1) {
    return {Partitioner::Kind::fixed, number_or(0, servers), 0};
  }
  if (name == "min-size" && numbers.size() <= 2) {
    return {Partitioner::Kind::min_size, number_or(1, servers), number_or(0, k_default_min_bytes)};
  }
  if (name == "max-size" && (numbers.size() == 1 || numbers.size() == 2)) {
    return {Partitioner::Kind::max_size, number_or(1, 0), numbers[0]};
  }
  refuse(text);
}

std::vector<ArenaRange> partition(const ArenaRange& tensor, const Partitioner& partitioner) {
  const std::size_t rows = tensor.size() / k_granule;
  const std::size_t count = range_count(rows, partitioner);
  std::vector<ArenaRange> ranges;
  for (std::size_t first = tensor.first; ranges.size() < count;) {
    const std::size_t mine = rows / count + (ranges.size() < rows % count ? 1 : 0);
    ranges.push_back({first, first + mine * k_granule});
    first = ranges.back().last;
  }
  return ranges;
}

std::vector<std::vector<ArenaRange>> place(const std::vector<ArenaRange>& tensors,
                                           const Partitioner& partitioner, std::size_t servers) {
  std::vector<ArenaRange> all;
  for (const ArenaRange& tensor : tensors) {
    const auto ranges = partition(tensor, partitioner);
    all.insert(all.end(), ranges.begin(), ranges.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ArenaRange& a, const ArenaRange& b) { return a.size() > b.size(); });
  std::vector<std::vector<ArenaRange>> placed(servers);
  std::vector<std::size_t> load(servers);
  for (const ArenaRange& range : all) {
    const auto least =
        static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[least] += range.size();
    placed[least].push_back(range);
  }
  for (auto& ranges : placed) {
    std::sort(ranges.begin(), ranges.end(),
              [](const ArenaRange& a, const ArenaRange& b) { return a.first < b.first; });
  }
  return placed;
}

} // namespace trainer
