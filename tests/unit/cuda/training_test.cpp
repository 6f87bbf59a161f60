// The same training on a GPU, faked, and on the CPU: the path of a real GPU, up to the plug-in.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <mutex>

#include "tests/unit/cuda/gpu.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/multi_worker.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr std::uint64_t k_seed = 4;
constexpr std::int64_t k_steps = 6;

struct Trained {
  std::vector<NamedTensor> tensors;
  Score score;    ///< Of all steps.
  Score held_out; ///< After them.
};

const ModelOptions k_model{.hidden = {40, 19}};

/// One rank's part.
Trained train_on(Device& device, Communicator& communicator, const StepOptions& options,
                 const OptimizerOptions& optimizer) {
  const Dataset data = synthetic_dataset(96, 1);
  Replica replica(fitted(k_model, data), optimizer, device, communicator);
  replica.model->initialize(k_seed);
  MultiWorker strategy(communicator, replica, options);
  const std::size_t rows = 24 / static_cast<std::size_t>(communicator.world_size());
  Loader loader(data.train, device,
                {rows, communicator.rank(), communicator.world_size(), k_seed, 0, k_steps});
  Trained trained;
  for (const Batch& batch : loader) {
    trained.score += strategy.step(batch);
  }
  trained.score += strategy.settle();
  trained.held_out = evaluate(*replica.model, data.train, device, 33, communicator);
  const HostView view(device, replica.parameters.span());
  trained.tensors = replica.model->tensors().export_arena(view.values());
  return trained;
}

Trained train_alone(Device& device, const StepOptions& options,
                    const OptimizerOptions& optimizer = {}) {
  const auto alone = make_single_rank(device.is_host() ? nullptr : &device);
  return train_on(device, *alone, options, optimizer);
}

void check_equal(const Trained& found, const Trained& expected) {
  CHECK(found.score.count == expected.score.count);
  CHECK(found.score.loss == doctest::Approx(expected.score.loss).epsilon(1e-5));
  CHECK(found.held_out.count == 96);
  CHECK(found.held_out.loss == doctest::Approx(expected.held_out.loss).epsilon(1e-4));
  REQUIRE(found.tensors.size() == expected.tensors.size());
  for (std::size_t t = 0; t < found.tensors.size(); ++t) {
    CAPTURE(found.tensors[t].name);
    REQUIRE(found.tensors[t].name == expected.tensors[t].name);
    REQUIRE(found.tensors[t].shape == expected.tensors[t].shape);
    float worst = 0;
    for (std::size_t i = 0; i < found.tensors[t].values.size(); ++i) {
      worst = std::max(worst, std::abs(found.tensors[t].values[i] - expected.tensors[t].values[i]));
    }
    CHECK(worst < 3e-4); // Adam turns the least rounding of what is near zero into part of a step.
  }
}

} // namespace

TEST_CASE("a GPU trains the MLP to the CPU's loss, and gives all back") {
  const std::size_t before = cuda_on_cpu::live();
  {
    CpuDevice cpu(portable_kernels());
    CudaDevice gpu = make_fake_gpu();
    check_equal(train_alone(gpu, {.buckets = 0}), train_alone(cpu, {.buckets = 0}));
    const StepOptions accumulated{.buckets = 0, .rows_at_once = 7, .clip_norm = 0.5};
    const OptimizerOptions lamb{.rule = OptimizerOptions::Rule::lamb};
    check_equal(train_alone(gpu, accumulated, lamb), train_alone(cpu, accumulated, lamb));
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("two GPUs in one process learn what one with their global batch learns") {
  CudaDevice one = make_fake_gpu();
  const Trained alone = train_alone(one, {.buckets = 0});
  std::vector<Trained> together(2);
  run_replicas(2, CrossDeviceOps::shares, [&](Communicator& communicator) {
    CudaDevice gpu = make_fake_gpu(communicator.rank());
    DeviceCommunicator of_gpu(communicator, gpu);
    together[static_cast<std::size_t>(communicator.rank())] =
        train_on(gpu, of_gpu, {.buckets = 4 << 10}, {});
  });
  together[0].score += together[1].score;
  check_equal(together[0], alone);
  for (std::size_t t = 0; t < alone.tensors.size(); ++t) {
    CHECK(together[0].tensors[t].values == together[1].tensors[t].values);
  }
}

TEST_CASE("a loss on a GPU that is no number ends the run, naming the step and the tensor") {
  CudaDevice gpu = make_fake_gpu();
  try {
    train_alone(gpu, {.buckets = 0}, {.rule = OptimizerOptions::Rule::sgd, .learning_rate = 1e30});
    FAIL("it went on");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("no number any more at step ") != std::string::npos);
    CHECK(text.find("look at ") != std::string::npos);
  }
}

TEST_CASE("what a stream is given is done when somebody waits for it, in the order of events") {
  CudaDevice gpu = make_fake_gpu();
  const auto other = gpu.make_stream();
  const Buffer pinned = gpu.allocate_pinned(2, DType::f32);
  const Buffer memory = gpu.allocate(2, DType::f32);
  pinned.data()[0] = 3;
  pinned.data()[1] = 4;
  gpu.stream().copy(pinned.memory(), memory.memory(), pinned.bytes());
  const auto arrived = gpu.stream().record();
  other->wait(*arrived);
  const Buffer back = gpu.allocate_pinned(2, DType::f32);
  back.data()[1] = 0;
  other->copy(memory.memory(), back.memory(), back.bytes());
  const auto done = other->record();
  CHECK(!done->has_passed());
  CHECK(back.data()[1] == 0);
  done->wait();
  CHECK(done->has_passed());
  CHECK(arrived->has_passed());
  CHECK(back.data()[1] == 4);
}

TEST_CASE("what a GPU cannot be is said in one line") {
  const auto told = [](int index) {
    try {
      make_fake_gpu(index);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(told(0).empty());
  CHECK(told(2).find("--device=cuda: there is no GPU 2 here, but 2") == 0);
  setenv("DTRAIN_FAKE_DRIVER", "0", 1);
  CHECK(told(0) == "--device=cuda: no NVIDIA driver on this machine; use --device=cpu");
  setenv("DTRAIN_FAKE_DRIVER", "12040", 1);
  CHECK(told(0).find("the driver is for CUDA 12.4, and CUDA 13.0 is needed") != std::string::npos);
  unsetenv("DTRAIN_FAKE_DRIVER");
  CudaDevice gpu = make_fake_gpu();
  CHECK_THROWS_WITH_AS(gpu.allocate(std::size_t{1} << 30, DType::f32),
                       doctest::Contains("gpu:0: no 4.00 GiB more, of 0.25 GiB "), Error);
}
