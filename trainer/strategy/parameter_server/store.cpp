#include "trainer/strategy/parameter_server/store.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace trainer {
namespace {

constexpr std::size_t k_block = 4096; ///< Floats; gradient, moments and values fit the L2 cache.

std::vector<Shard> dense_first(std::vector<Shard> shards) {
  std::stable_partition(shards.begin(), shards.end(), [](const Shard& s) { return !s.sparse; });
  return shards;
}

std::size_t total(const std::vector<Shard>& shards) {
  return std::accumulate(shards.begin(), shards.end(), std::size_t{0},
                         [](std::size_t sum, const Shard& shard) { return sum + shard.count(); });
}

} // namespace

ShardStore::ShardStore(std::vector<Shard> shards, const LearningRate& learning_rate, Device& device)
    : shards_(dense_first(std::move(shards))), parameters_(total(shards_)),
      gradients_(parameters_.size()), learning_rate_(learning_rate),
      optimizer_({}, parameters_.span(), gradients_.span(), device) {
  std::size_t start = 0;
  for (const Shard& shard : shards_) {
    starts_.push_back(start);
    start += shard.count();
    if (!shard.sparse) {
      ++dense_shards_;
      dense_count_ = start;
    }
  }
}

std::span<float> ShardStore::shard_parameters(std::size_t shard) const {
  return parameters_.span().subspan(starts_[shard], shards_[shard].count());
}

std::span<float> ShardStore::row(std::size_t shard, std::uint64_t row) const {
  return parameters_.span().subspan(starts_[shard] + row * shards_[shard].row_length,
                                    shards_[shard].row_length);
}

void ShardStore::apply(std::span<const Contribution> contributions) {
  double samples = 0;
  for (const Contribution& one : contributions) {
    samples += one.weight;
  }
  optimizer_.set_learning_rate(learning_rate_.at(static_cast<double>(version())));
  optimizer_.begin_step();
  for (std::size_t s = 0; s < dense_shards_; ++s) {
    const std::size_t count = shards_[s].count();
    for (std::size_t first = 0; first < count; first += k_block) {
      const std::size_t size = std::min(k_block, count - first);
      float* sum = gradients_.data() + starts_[s] + first;
      for (std::size_t k = 0; k < contributions.size(); ++k) {
        const float* from = contributions[k].dense[s] + first;
        const auto share = static_cast<float>(contributions[k].weight / samples);
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
      optimizer_.update(starts_[s] + first, starts_[s] + first + size);
    }
  }
  apply_sparse(contributions, samples);
}

void ShardStore::apply_sparse(std::span<const Contribution> contributions, double samples) {
  std::unordered_set<std::size_t> seen;
  std::vector<std::pair<std::size_t, std::size_t>> touched; // (start, length) in the arenas
  for (const Contribution& one : contributions) {
    const auto share = static_cast<float>(one.weight / samples);
    for (const SparseRows& rows : one.sparse) {
      const std::size_t length = shards_[rows.shard].row_length;
      for (std::size_t r = 0; r < rows.rows.size(); ++r) {
        const std::size_t start = starts_[rows.shard] + rows.rows[r] * length;
        float* sum = gradients_.data() + start;
        if (seen.insert(start).second) {
          touched.emplace_back(start, length);
          std::fill_n(sum, length, 0.0F);
        }
        for (std::size_t i = 0; i < length; ++i) {
          sum[i] += share * rows.values[r * length + i];
        }
      }
    }
  }
  for (const auto& [start, length] : touched) {
    optimizer_.update(start, start + length);
  }
}

} // namespace trainer
