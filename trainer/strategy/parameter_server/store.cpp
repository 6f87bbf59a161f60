#include "trainer/strategy/parameter_server/store.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/checkpoint/numbered_files.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_block = 4096; ///< Floats; gradient, moments and values fit the L2 cache.

} // namespace

ShardStore::ShardStore(std::vector<ArenaRange> ranges, const LearningRate& learning_rate,
                       Device& device)
    : ranges_(std::move(ranges)), parameters_(floats_in(ranges_)), gradients_(parameters_.size()),
      learning_rate_(learning_rate), optimizer_({}, parameters_.span(), gradients_.span(), device) {
}

void ShardStore::apply(std::span<const Contribution> contributions) {
  double samples = 0;
  for (const Contribution& one : contributions) {
    samples += one.weight;
  }
  optimizer_.set_learning_rate(
      learning_rate_.at(static_cast<double>(version()) * learning_rate_.update));
  optimizer_.begin_step();
  std::size_t start = 0; // Offset in the arena of this server.
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    for (std::size_t first = 0; first < ranges_[r].size(); first += k_block) {
      const std::size_t size = std::min(k_block, ranges_[r].size() - first);
      float* sum = gradients_.data() + start + first;
      for (std::size_t k = 0; k < contributions.size(); ++k) {
        const float* from = contributions[k].gradients[r] + first;
        const auto share =
            static_cast<float>(contributions[k].weight / samples * contributions[k].factor);
        if (k == 0) {
          for (std::size_t i = 0; i < size; ++i) {
            sum[i] = share * from[i];
          }
        } else {
          for (std::size_t i = 0; i < size; ++i) {
            sum[i] += share * from[i];
          }
        }
      }
      optimizer_.update(start + first, start + first + size);
    }
    start += ranges_[r].size();
  }
}

std::vector<ShardStore::Part> ShardStore::parts() const {
  std::vector<Part> parts = {{{"parameter", {parameters_.size()}}, parameters()}};
  for (const Optimizer::Moment& moment : optimizer_.moments()) {
    parts.push_back({{moment.name, {moment.values.memory.size()}}, moment.values.memory});
  }
  return parts;
}

void ShardStore::save(const std::string& folder, const std::string& holds, std::size_t keep) const {
  std::vector<TensorShape> shapes;
  for (const Part& part : parts()) {
    shapes.push_back(part.shape);
  }
  NumberedWriter file(folder, version(),
                      {{"format", "dtrain parameter server snapshot 3"}, {"holds", holds}}, shapes);
  for (const Part& part : parts()) {
    file.write(part.values);
  }
  file.commit(keep);
}

std::vector<std::int64_t> ShardStore::snapshots(const std::string& folder) {
  std::vector<std::int64_t> versions;
  for (const NumberedFile& found : numbered_files(folder)) {
    if (what_is_wrong(found.path).empty()) {
      versions.push_back(found.number);
    }
  }
  return versions;
}

void ShardStore::load(const std::string& folder, const std::string& holds, std::int64_t version) {
  const SafeTensorsFile file(numbered_file(folder, version).path);
  const auto held = file.metadata().find("holds");
  if (held == file.metadata().end() || held->second != holds) {
    throw DataError(fmt::format("{}: is of another job, number of servers or version of "
                                "dtrain-trainer; use another --snapshot-dir or remove it",
                                file.path()));
  }
  for (const Part& part : parts()) {
    const auto saved =
        std::find_if(file.tensors().begin(), file.tensors().end(), [&](const StoredTensor& tensor) {
          return tensor.name == part.shape.name && tensor.count() == part.values.size();
        });
    if (saved == file.tensors().end()) {
      throw DataError(fmt::format("{}: has no {}", file.path(), part.shape.name));
    }
    file.read(*saved, 0, part.values);
  }
  optimizer_.set_state(version, 0, {});
  for (const NumberedFile& found : numbered_files(folder)) {
    if (found.number > version) {
      remove_numbered(found);
    }
  }
}

} // namespace trainer
