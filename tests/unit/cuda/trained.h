// A short training, on whatever device, and what it learned.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/trainer/largest_difference.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/data/synthetic_text.h"
#include "trainer/device/host_view.h"
#include "trainer/models/model.h"
#include "trainer/run/evaluate.h"
#include "trainer/strategy/training_step.h"

namespace trainer::test {

inline constexpr std::uint64_t k_seed = 4;
inline constexpr std::int64_t k_steps = 6;

struct Trained {
  std::vector<NamedTensor> tensors;
  Score score;    ///< Of all steps.
  Score held_out; ///< After them.
};

inline const ModelOptions k_model{.hidden = {40, 19}};

/// What is trained, and on what.
struct Task {
  ModelOptions model;
  Dataset data;
  std::size_t rows; ///< Of a step.
  std::int64_t steps;
  Precision precision = Precision::fp32;
  Offload offload = {};
};

inline Task on_images() { return {k_model, synthetic_dataset(96, 1), 24, k_steps}; }

/// Small: the kernels may be emulated.
inline Task on_text(const std::string& name = "bert", std::size_t words = 40) {
  ModelOptions model{.name = name, .seed = 3};
  model.transformer = {.layers = 2, .hidden = 32, .heads = 2, .inner = 48, .max_length = 16};
  return {model, synthetic_text(12, 14, words, 1, model.is_causal()), 6, 3};
}

/// One rank's part.
inline Trained train_on(Device& device, Communicator& communicator, const StepOptions& options,
                        const OptimizerOptions& optimizer, const Task& task = on_images()) {
  const Dataset& data = task.data;
  Replica replica(fitted(task.model, data), optimizer, device, communicator, {}, task.offload);
  replica.attach(communicator);
  replica.compute_in(task.precision);
  replica.initialize(k_seed);
  TrainingStep training(communicator, replica, options);
  const std::size_t rows = task.rows / static_cast<std::size_t>(communicator.world_size());
  Loader loader(data.train, device,
                {rows, communicator.rank(), communicator.world_size(), k_seed, 0, task.steps},
                {.leaves_gathering = true});
  Trained trained;
  for (const Batch& batch : loader) {
    trained.score += training.run(batch);
  }
  trained.score += training.settle();
  trained.held_out = evaluate(*replica.model, *replica.make_owner(communicator), data.train, device,
                              33, communicator);
  const HostView view(device, replica.parameters);
  trained.tensors = replica.model->tensors().export_arena(view.values());
  return trained;
}

inline Trained train_alone(Device& device, const StepOptions& options,
                           const OptimizerOptions& optimizer = {}, const Task& task = on_images()) {
  const auto alone = make_single_rank(device.is_host() ? nullptr : &device);
  return train_on(device, *alone, options, optimizer, task);
}

inline void check_equal(const Trained& found, const Trained& expected) {
  CHECK(found.score.count == expected.score.count);
  CHECK(found.score.loss == doctest::Approx(expected.score.loss).epsilon(1e-5));
  CHECK(found.held_out.count == expected.held_out.count);
  CHECK(found.held_out.count > 0);
  CHECK(found.held_out.loss == doctest::Approx(expected.held_out.loss).epsilon(1e-4));
  REQUIRE(found.tensors.size() == expected.tensors.size());
  for (std::size_t t = 0; t < found.tensors.size(); ++t) {
    CAPTURE(found.tensors[t].name);
    REQUIRE(found.tensors[t].name == expected.tensors[t].name);
    REQUIRE(found.tensors[t].shape == expected.tensors[t].shape);
    // Adam turns the least rounding of what is near zero into part of a step.
    CHECK(largest_difference(found.tensors[t].values, expected.tensors[t].values) < 3e-4);
  }
}

} // namespace trainer::test
