#include "trainer/strategy/parameter_server/partition.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_default_min_bytes = std::size_t{256} << 10;
constexpr std::size_t k_most = std::size_t{1} << 40;

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(fmt::format("--partitioner={}: use none, fixed[:SHARDS], "
                               "min-size[:BYTES[:SHARDS]] or max-size:BYTES[:SHARDS]",
                               text));
}

std::size_t shard_count(const Variable& variable, const Partitioner& partitioner) {
  const std::size_t row_bytes = std::max<std::size_t>(variable.row_length * sizeof(float), 1);
  std::size_t count = 1;
  switch (partitioner.kind) {
  case Partitioner::Kind::none:
    break;
  case Partitioner::Kind::fixed:
    count = partitioner.shards;
    break;
  case Partitioner::Kind::min_size:
    count = std::min(partitioner.shards, variable.rows * row_bytes / partitioner.bytes);
    break;
  case Partitioner::Kind::max_size: {
    const std::size_t rows_a_shard = std::max<std::size_t>(partitioner.bytes / row_bytes, 1);
    count = (variable.rows + rows_a_shard - 1) / rows_a_shard;
    if (partitioner.shards > 0) {
      count = std::min(count, partitioner.shards);
    }
    break;
  }
  }
  return std::clamp<std::size_t>(count, 1, std::max<std::size_t>(variable.rows, 1));
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

std::vector<Shard> partition(const Variable& variable, const Partitioner& partitioner) {
  const std::size_t count = shard_count(variable, partitioner);
  std::vector<Shard> shards;
  std::size_t row = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rows = variable.rows / count + (i < variable.rows % count ? 1 : 0);
    shards.push_back({variable.name, row, rows, variable.row_length,
                      variable.offset + row * variable.row_length, variable.sparse});
    row += rows;
  }
  return shards;
}

std::vector<std::vector<Shard>> place(const std::vector<Variable>& variables,
                                      const Partitioner& partitioner, std::size_t servers) {
  std::vector<Shard> all;
  for (const Variable& variable : variables) {
    for (Shard& shard : partition(variable, partitioner)) {
      all.push_back(std::move(shard));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Shard& a, const Shard& b) { return a.count() > b.count(); });
  std::vector<std::vector<Shard>> placed(servers);
  std::vector<std::size_t> load(servers);
  for (Shard& shard : all) {
    const auto least =
        static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[least] += shard.count();
    placed[least].push_back(std::move(shard));
  }
  for (auto& shards : placed) {
    std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) {
      return a.sparse != b.sparse ? b.sparse : a.offset < b.offset;
    });
  }
  return placed;
}

} // namespace trainer
