// A training of ranks that share a replica, each on a GPU of its own, and what it learned.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/cuda/gpu.h"
#include "tests/unit/variable.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/nccl/nccl_group.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/data/synthetic_text.h"
#include "trainer/device/host_view.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/training_step.h"

namespace trainer::test::shared {

inline constexpr std::uint64_t k_seed = 4;

struct Run {
  ModelOptions model;
  Dataset data;
  int ranks = 2;
  StepOptions step = {.buckets = 1 << 14};
  std::size_t rows = 4; ///< Of a rank's step.
  std::int64_t steps = 2;
  bool by_nccl = false;
  Offload offload = {};
  Precision precision = Precision::fp32;
  MatmulPrecision products = MatmulPrecision::highest;
  bool begins_rounded = false; ///< With parameters of `precision`.
  OptimizerOptions optimizer = {};
};

inline Run on_images(std::vector<std::size_t> hidden = {40, 19}) {
  return {{.hidden = std::move(hidden)}, synthetic_dataset(96, 1)};
}

/// Gradients of two passes are added up, and clipped.
inline void clip(Run& run) {
  run.rows = 6;
  run.step = {.buckets = 1 << 14, .rows_at_once = 4, .clip_norm = 0.5};
}

inline Run on_text(const std::string& name) {
  ModelOptions model{.name = name, .seed = 3};
  model.transformer = {.layers = 2, .hidden = 32, .heads = 2, .inner = 48, .max_length = 16};
  return {model, synthetic_text(12, 14, 40, 1, model.is_causal()), 2, {.buckets = 1 << 14}, 2, 2};
}

struct Learned {
  std::vector<float> parameters;
  double loss = 0;
  std::size_t most_allocated = 0; ///< Of a rank.

  bool has_the_bits_of(const Learned& other) const {
    return parameters == other.parameters && loss == other.loss;
  }
};

inline void round_parameters(CudaDevice& gpu, const Replica& replica) {
  const auto round = [&](std::span<float> values) { round_to(replica.precision, values, values); };
  if (replica.sharding.stage < 3) {
    const HostView view(gpu, replica.parameters);
    round(view.values());
    view.write_back();
    return;
  }
  const OwnChunks chunks = replica.own_chunks();
  chunks.for_each(replica.own, [&](std::size_t at, const ArenaRange& range) {
    std::vector<float> values(range.size());
    chunks.values.read(gpu, at, values);
    round(values);
    chunks.values.write(gpu, at, values);
  });
}

inline void train_on(CudaDevice& gpu, Communicator& communicator, int stage, const Run& run,
                     std::mutex& mutex, Learned& learned) {
  Replica replica(fitted(run.model, run.data), run.optimizer, gpu, communicator,
                  {stage, run.step.buckets}, run.offload);
  replica.compute_in(run.precision);
  replica.attach(communicator, k_vote_floats);
  replica.initialize(k_seed);
  if (run.begins_rounded) {
    round_parameters(gpu, replica);
  }
  TrainingStep training(communicator, replica, run.step);
  Loader loader(run.data.train, gpu,
                {run.rows, communicator.rank(), run.ranks, k_seed, 0, run.steps},
                {.leaves_gathering = true});
  Score score;
  for (const Batch& batch : loader) {
    score += training.run(batch);
  }
  score += training.settle();
  const std::size_t most_allocated = gpu.most_allocated();
  std::vector<float> parameters;
  const auto add = [&](std::span<const float> values) {
    parameters.insert(parameters.end(), values.begin(), values.end());
  };
  if (replica.sharding.stage == 3) {
    gather_buckets(
        communicator, gpu, replica.shards(communicator), replica.own_chunks(),
        [&](const ArenaRange& /*bucket*/, std::span<const float> values) { add(values); });
  } else {
    add(HostView(gpu, replica.parameters).values());
  }
  const std::lock_guard lock(mutex);
  if (communicator.rank() == 0) {
    learned.parameters = std::move(parameters);
    learned.loss = score.loss;
    learned.most_allocated = most_allocated;
  }
}

inline Learned train(int stage, const Run& run) {
  const unit::Variable gpus("DTRAIN_FAKE_GPUS", std::to_string(run.ranks).c_str());
  Learned learned;
  std::mutex mutex;
  std::vector<std::unique_ptr<CudaDevice>> devices;
  std::vector<CudaDevice*> all;
  for (int rank = 0; rank < run.ranks; ++rank) {
    all.push_back(devices.emplace_back(make_gpu(rank)).get());
    all.back()->set_matmul_precision(run.products);
  }
  const auto alone = make_single_rank();
  std::unique_ptr<NcclGroup> group;
  if (run.by_nccl) {
    std::string why;
    group = std::make_unique<NcclGroup>(*all[0]->nccl(why), all, *alone, 20.0);
  }
  run_replicas(run.ranks, CrossDeviceOps::shares, [&](Communicator& inner) {
    CudaDevice& gpu = *all[static_cast<std::size_t>(inner.rank())];
    if (group != nullptr) {
      NcclCommunicator communicator(inner, *group, inner.rank());
      train_on(gpu, communicator, stage, run, mutex, learned);
    } else {
      DeviceCommunicator communicator(inner, gpu);
      train_on(gpu, communicator, stage, run, mutex, learned);
    }
  });
  return learned;
}

} // namespace trainer::test::shared
