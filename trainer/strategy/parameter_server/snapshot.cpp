// A store's snapshots are numbered files (checkpoint/numbered_files.h) by version. Their metadata
// says of which job and shards they are.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/numbered_files.h"
#include "trainer/errors.h"
#include "trainer/strategy/parameter_server/store.h"

namespace trainer {

/// "hidden.weight[0:392].adam.m", and where in which arena it is.
std::vector<ShardStore::Part> ShardStore::parts() const {
  std::vector<std::pair<std::string, std::span<float>>> arenas = {{"parameter", parameters()}};
  for (const Optimizer::Moment& moment : optimizer_.moments()) {
    arenas.emplace_back(moment.name, moment.values.span());
  }
  std::vector<Part> parts;
  for (const auto& [kind, arena] : arenas) {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      const Shard& shard = shards_[s];
      parts.push_back({fmt::format("{}[{}:{}].{}", shard.variable, shard.first_row,
                                   shard.first_row + shard.rows, kind),
                       shard, arena.subspan(starts_[s], shard.count())});
    }
  }
  return parts;
}

std::string ShardStore::describe(const std::string& job) const {
  nlohmann::json shards = nlohmann::json::array();
  for (const Shard& shard : shards_) {
    shards.push_back({shard.variable, shard.first_row, shard.rows, shard.row_length, shard.offset,
                      shard.sparse});
  }
  return nlohmann::json{{"job", job}, {"shards", shards}}.dump();
}

void ShardStore::save(const std::string& folder, const std::string& job, std::size_t keep) const {
  const std::vector<Part> all = parts();
  std::vector<TensorShape> shapes;
  shapes.reserve(all.size());
  for (const Part& part : all) {
    shapes.push_back({part.name, {part.shard.rows, part.shard.row_length}});
  }
  NumberedWriter file(folder, version(),
                      {{"format", "dtrain parameter server snapshot 2"}, {"holds", describe(job)}},
                      shapes);
  for (const Part& part : all) {
    file.write(part.values);
  }
  file.commit(keep);
}

void ShardStore::forget_after(const std::string& folder, std::int64_t version) {
  for (const NumberedFile& found : numbered_files(folder)) {
    if (found.number > version) {
      remove_numbered(found);
    }
  }
}

bool ShardStore::load(const std::string& folder, const std::string& job, std::int64_t version) {
  for (const NumberedFile& found : numbered_files(folder)) {
    if ((version >= 0 && found.number != version) || !what_is_wrong(found.path).empty()) {
      continue; // Damaged: an older one may be whole.
    }
    const SafeTensors content = read_safetensors(found.path);
    const auto holds = content.metadata.find("holds");
    if (holds == content.metadata.end() || holds->second != describe(job)) {
      throw DataError(fmt::format("{}: is of another job or another number of servers; use another "
                                  "--snapshot-dir or remove it",
                                  found.path));
    }
    for (const Part& part : parts()) {
      const auto saved =
          std::find_if(content.tensors.begin(), content.tensors.end(),
                       [&](const NamedTensor& tensor) { return tensor.name == part.name; });
      if (saved == content.tensors.end() || saved->values.size() != part.values.size()) {
        throw DataError(fmt::format("{}: has no {}", found.path, part.name));
      }
      std::copy(saved->values.begin(), saved->values.end(), part.values.begin());
    }
    optimizer_.set_state(found.number, 0, {});
    return true;
  }
  return false;
}

} // namespace trainer
