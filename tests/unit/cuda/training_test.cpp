// The same training on a GPU, faked, and on the CPU: the path of a real GPU, up to the plug-in.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/trainer/largest_difference.h"
#include "tests/unit/variable.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/in_process/peer_tree.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/data/synthetic_text.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/models/model.h"
#include "trainer/run/evaluate.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/training_step.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

namespace {

constexpr std::uint64_t k_seed = 4;
constexpr std::int64_t k_steps = 6;

struct Trained {
  std::vector<NamedTensor> tensors;
  Score score;    ///< Of all steps.
  Score held_out; ///< After them.
};

const ModelOptions k_model{.hidden = {40, 19}};

/// What is trained, and on what.
struct Task {
  ModelOptions model;
  Dataset data;
  std::size_t rows; ///< Of a step.
  std::int64_t steps;
  Precision precision = Precision::fp32;
  Offload offload = {};
};

Task on_images() { return {k_model, synthetic_dataset(96, 1), 24, k_steps}; }

/// Small: the kernels may be emulated.
Task on_text(const std::string& name = "bert", std::size_t words = 40) {
  ModelOptions model{.name = name, .seed = 3};
  model.transformer = {.layers = 2, .hidden = 32, .heads = 2, .inner = 48, .max_length = 16};
  return {model, synthetic_text(12, 14, words, 1, model.is_causal()), 6, 3};
}

/// One rank's part.
Trained train_on(Device& device, Communicator& communicator, const StepOptions& options,
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

Trained train_alone(Device& device, const StepOptions& options,
                    const OptimizerOptions& optimizer = {}, const Task& task = on_images()) {
  const auto alone = make_single_rank(device.is_host() ? nullptr : &device);
  return train_on(device, *alone, options, optimizer, task);
}

void check_equal(const Trained& found, const Trained& expected) {
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

} // namespace

TEST_CASE("a GPU trains the MLP to the CPU's loss") {
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  check_equal(train_alone(gpu, {.buckets = 0}), train_alone(cpu, {.buckets = 0}));
  const StepOptions accumulated{.buckets = 0, .rows_at_once = 7, .clip_norm = 0.5};
  const OptimizerOptions lamb{.rule = OptimizerOptions::Rule::lamb};
  check_equal(train_alone(gpu, accumulated, lamb), train_alone(cpu, accumulated, lamb));
}

TEST_CASE(
    "a step on one GPU is a graph once its memory is known, and is right after more is taken") {
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const Dataset data = synthetic_dataset(96, 1);
  const auto train = [&](Device& device) {
    const auto alone = make_single_rank(device.is_host() ? nullptr : &device);
    Replica replica(fitted(k_model, data), {}, device, *alone);
    replica.initialize(k_seed);
    TrainingStep training(*alone, replica, {.buckets = 0});
    Loader loader(data.train, device, {8, 0, 1, k_seed, 0, 16});
    double loss = 0;
    int step = 0;
    for (const Batch& batch : loader) {
      loss += training.run(batch).loss;
      if (++step == 8) { // Of more rows than before: the layers' outputs are elsewhere now.
        loss +=
            evaluate(*replica.model, *replica.make_owner(*alone), data.train, device, 33, *alone)
                .loss;
      }
    }
    return loss + training.settle().loss;
  };
#ifndef DTRAIN_ON_GPU
  const int before = cuda_on_cpu::calls("cudaGraphLaunch");
#endif
  CHECK(train(gpu) == doctest::Approx(train(cpu)).epsilon(1e-4));
#ifndef DTRAIN_ON_GPU
  CHECK(cuda_on_cpu::calls("cudaGraphLaunch") - before >= 6);
#endif
}

#ifndef DTRAIN_ON_GPU
namespace {

/// One that says it has so little memory free that it keeps no samples.
std::unique_ptr<CudaDevice> make_full_gpu() {
  setenv("DTRAIN_FAKE_FREE", "4096", 1);
  auto gpu = make_gpu();
  unsetenv("DTRAIN_FAKE_FREE");
  return gpu;
}

/// Of each of rank 1 of 2's batches the bytes of all fields, one after the other.
std::vector<std::vector<std::uint8_t>> batches(const Split& split, Device& device,
                                               std::uint64_t start) {
  std::vector<std::vector<std::uint8_t>> all;
  Loader loader(split, device, {12, 1, 2, k_seed, start, 6});
  for (const Batch& batch : loader) {
    std::vector<std::uint8_t>& bytes = all.emplace_back();
    for (const Batch::Field& field : batch.fields) {
      if (field.memory == nullptr) {
        continue;
      }
      const std::size_t first = bytes.size();
      bytes.resize(first + batch.rows * field.width * size_of(field.type));
      device.stream().copy(field.memory, bytes.data() + first, bytes.size() - first);
    }
  }
  return all;
}

} // namespace

TEST_CASE("batches of any kind are the host's on a GPU, byte for byte") {
  const auto gpu = make_full_gpu();
  const auto keeping = make_gpu();
  CpuDevice cpu(portable_kernels());
  // Labels are kept in 8, 16 and 32 bits.
  for (const Dataset& data :
       {synthetic_dataset(50, 1), synthetic_dataset(50, 1, 1000), synthetic_dataset(50, 1, 100'000),
        synthetic_text(50, 14, 40, 1, false), synthetic_text(50, 14, 40, 1, true)}) {
    CAPTURE(data.train.source->kind().scored);
    const auto expected = batches(data.train, cpu, 0);
    REQUIRE(expected.size() == 6);
    CHECK(expected[0].size() > 0);
    CHECK(expected[0] != expected[1]);
    CHECK(batches(data.train, *gpu, 0) == expected);
    CHECK(batches(data.train, *keeping, 0) == expected);
    CHECK(batches(data.train, *gpu, 48) == batches(data.train, cpu, 48));
  }
}

TEST_CASE("what a GPU keeps it learns as what is sent to it, bit for bit, from any step on") {
  const auto keeping = make_gpu();
  const auto full = make_full_gpu();
  const Dataset data = synthetic_dataset(50, 1); // Batches of 24: most are of two epochs.
  REQUIRE(is_kept(*data.train.source, *keeping));
  REQUIRE(!is_kept(*data.train.source, *full));
  CpuDevice cpu(portable_kernels());
  const auto expected = batches(data.train, cpu, 0);
  CHECK(batches(data.train, *keeping, 0) == expected);
  CHECK(batches(data.train, *keeping, 48) == batches(data.train, *full, 48));
  CHECK(batches(data.train, *keeping, 48).front() == expected[2]);

  for (const StepOptions& options :
       {StepOptions{.buckets = 0},
        StepOptions{.buckets = 0, .rows_at_once = 7, .clip_norm = 0.5}}) {
    const Trained of_kept = train_alone(*keeping, options);
    const Trained of_sent = train_alone(*full, options);
    CHECK(of_kept.score.loss == of_sent.score.loss);
    for (std::size_t t = 0; t < of_kept.tensors.size(); ++t) {
      CHECK(of_kept.tensors[t].values == of_sent.tensors[t].values);
    }
  }
}

TEST_CASE("a step on one GPU is few calls, which make no events, and copy what is sent alone") {
  const Dataset data = synthetic_dataset(96, 1);
  const auto count = [&](CudaDevice& gpu, const StepOptions& options) {
    const auto alone = make_single_rank(&gpu);
    Replica replica(fitted(k_model, data), {}, gpu, *alone);
    replica.initialize(k_seed);
    TrainingStep training(*alone, replica, options);
    Loader loader(data.train, gpu, {24, 0, 1, k_seed, 0, INT64_MAX}, {.leaves_gathering = true});
    auto batch = loader.begin();
    const auto steps = [&](int many) {
      for (int step = 0; step < many; ++step, ++batch) {
        training.run(*batch);
      }
    };
    steps(16); // All is a graph by now.
    std::map<std::string, int> calls;
    const auto add = [&](int sign) {
      for (const char* name :
           {"kernel", "noted", "cudaGraphLaunch", "cudaEventRecord", "cudaStreamWaitEvent",
            "cudaMemcpyAsync", "cudaMemsetAsync", "cudaEventCreateWithFlags", "cudaEventDestroy",
            "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMalloc"}) {
        calls[name] += sign * cuda_on_cpu::calls(name);
      }
    };
    add(-1);
    steps(8);
    add(1);
    std::erase_if(calls, [](const auto& call) { return call.second == 0; });
    training.settle();
    return calls;
  };
  using Calls = std::map<std::string, int>;
  const auto keeping = make_gpu();
  for (const double clip_norm : {0.0, 0.5}) {
    CHECK(count(*keeping, {.buckets = 0, .clip_norm = clip_norm}) ==
          Calls{{"kernel", 8}, {"cudaGraphLaunch", 8}, {"cudaEventRecord", 8}});
  }
  const auto full = make_full_gpu();
  CHECK(count(*full, {.buckets = 0}) == Calls{{"kernel", 16},
                                              {"cudaGraphLaunch", 8},
                                              {"cudaMemcpyAsync", 8},
                                              {"cudaStreamWaitEvent", 16},
                                              {"cudaEventRecord", 24},
                                              {"cudaEventSynchronize", 8}});
}
#endif

TEST_CASE("a GPU trains the CNN as the CPU does") {
  const auto train = [](Device& device) { // Small: the kernels may be emulated.
    const ModelOptions options{
        .name = "cnn", .height = 9, .width = 10, .classes = 10, .hidden = {24}};
    const auto model = make_model(options, device);
    On<float> parameters(device, std::vector<float>(model->tensors().arena_size()));
    On<float> gradients(device, std::vector<float>(model->tensors().arena_size()));
    const std::vector<float> pixels = numbers(std::size_t{5} * 90, 7);
    On<float> images(device, pixels);
    On<std::int32_t> labels(device, {1, 0, 7, 3, 9});
    On<Score> score(device, {Score{}});
    On<float> mean(device, {0.2F});
    const std::size_t floats = model->tensors().arena_size();
    const Arenas arenas{{parameters.data(), floats}, {gradients.data(), floats}};
    Replicated owner(model->units(), arenas);
    const HostView view(device, arenas.parameters);
    model->initialize(k_seed, view.values());
    view.write_back();
    Optimizer sgd({.rule = OptimizerOptions::Rule::sgd, .learning_rate = 0.05}, arenas.parameters,
                  arenas.gradients, device);
    const Batch batch = Batch{.rows = 5}
                            .with(field::images, {images.data(), pixels.size()})
                            .with(field::labels, {labels.data(), 5});
    for (int step = 0; step < 3; ++step) {
      model->forward_backward(batch.slice(0, 2), mean.data(), false, owner, score.data());
      model->forward_backward(batch.slice(2, 3), mean.data(), true, owner, score.data());
      sgd.begin_step();
      sgd.update(0, floats);
    }
    return std::pair(model->tensors().export_arena(parameters.read()), score.read()[0]);
  };
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const auto of_cpu = train(cpu);
  const auto of_gpu = train(gpu);
  const std::vector<NamedTensor>& expected = of_cpu.first;
  const std::vector<NamedTensor>& found = of_gpu.first;
  CHECK(of_gpu.second.count == 15);
  CHECK(of_gpu.second.loss == doctest::Approx(of_cpu.second.loss).epsilon(1e-4));
  REQUIRE(found.size() == expected.size());
  for (std::size_t t = 0; t < found.size(); ++t) {
    CAPTURE(found[t].name);
    REQUIRE(found[t].name == expected[t].name);
    REQUIRE(found[t].shape == expected[t].shape);
    for (std::size_t i = 0; i < found[t].values.size(); ++i) {
      REQUIRE(found[t].values[i] ==
              doctest::Approx(expected[t].values[i]).epsilon(1e-3).scale(0.1));
    }
  }
}

TEST_CASE("a GPU trains BERT to the CPU's loss, dropout included") {
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const StepOptions options{.buckets = 0, .rows_at_once = 4, .clip_norm = 0.5};
  // Of gradients alone: Adam makes the least rounding of the keys' biases', which are 0, a step.
  const OptimizerOptions sgd{.rule = OptimizerOptions::Rule::sgd, .learning_rate = 0.5};
  for (const char* name : {"bert", "gpt2"}) {
    check_equal(train_alone(gpu, options, sgd, on_text(name)),
                train_alone(cpu, options, sgd, on_text(name)));
  }
}

TEST_CASE("a GPU trains BERT and GPT-2 in bf16 to nearly the CPU's loss in float32") {
  CpuDevice cpu(portable_kernels());
  const StepOptions options{.buckets = 0, .clip_norm = 0.5};
  const OptimizerOptions sgd{.rule = OptimizerOptions::Rule::sgd, .learning_rate = 0.5};
  for (const std::string name : {"bert", "gpt2"}) {
    CAPTURE(name);
    Task task = on_text(name);
    task.steps = 2;
    if (name == "gpt2") { // The other has no cuBLASLt, and attention without tensor cores.
      task.model.transformer.heads = 1;
      setenv("DTRAIN_FAKE_BLAS", "1", 1);
    }
    const auto gpu = make_gpu();
    Task in_bf16 = task;
    in_bf16.precision = Precision::bf16;
    const Trained found = train_alone(*gpu, options, sgd, in_bf16);
    unsetenv("DTRAIN_FAKE_BLAS");
    const Trained expected = train_alone(cpu, options, sgd, task);
    CHECK(found.score.count == expected.score.count);
    CHECK(found.score.loss == doctest::Approx(expected.score.loss).epsilon(2e-3));
    CHECK(found.score.loss != expected.score.loss);
    CHECK(found.held_out.loss == doctest::Approx(expected.held_out.loss).epsilon(5e-3));
  }
}

TEST_CASE("a GPU that multiplies in FP8 learns nearly what it learns in bf16, and repeats itself") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const StepOptions options{.buckets = 0, .clip_norm = 0.5};
  const OptimizerOptions sgd{.rule = OptimizerOptions::Rule::sgd, .learning_rate = 0.5};
  Task on_wide_images = on_images(); // FP8 is for multiples of 16.
  on_wide_images.model.hidden = {64, 32};
  on_wide_images.rows = 32;
  std::vector<Task> tasks = {on_wide_images, on_text("bert"), on_text("gpt2")};
  for (Task& task : tasks) {
    CAPTURE(task.model.name);
    task.precision = Precision::bf16;
    if (task.model.is_of_text()) {
      task.rows = 8;
      task.steps = 2;
    }
    const auto train = [&](MatmulPrecision precision) {
      const auto gpu = make_gpu();
      const bool has_it = gpu->set_matmul_precision(precision);
      return has_it ? std::optional(train_alone(*gpu, options, sgd, task)) : std::nullopt;
    };
    const std::optional<Trained> found = train(MatmulPrecision::fp8);
    if (!found) { // Of an older GPU.
      return;
    }
    const Trained expected = *train(MatmulPrecision::highest);
    CHECK(found->score.count == expected.score.count);
    CHECK(found->score.loss == doctest::Approx(expected.score.loss).epsilon(0.02));
    CHECK(found->score.loss != expected.score.loss);
    CHECK(found->held_out.loss == doctest::Approx(expected.held_out.loss).epsilon(0.05));
    const Trained again = *train(MatmulPrecision::fp8);
    CHECK(again.score.loss == found->score.loss);
    for (std::size_t t = 0; t < found->tensors.size(); ++t) {
      CAPTURE(found->tensors[t].name);
      CHECK(again.tensors[t].values == found->tensors[t].values);
    }
  }
}

#ifndef DTRAIN_ON_GPU
TEST_CASE("weights that are rounded once a step give the bits of those rounded in each product") {
  setenv("DTRAIN_FAKE_BLAS", "1", 1);
  Task task = on_text("gpt2", 41); // Words' rows are filled up.
  const StepOptions options{.buckets = 0, .rows_at_once = 4, .clip_norm = 0.5};
  const auto each = make_gpu();
  each->multiply_in(DType::bf16);
  const Trained expected = train_alone(*each, options, {}, task);
  task.precision = Precision::bf16;
  const auto once = make_gpu();
  const Trained found = train_alone(*once, options, {}, task);
  unsetenv("DTRAIN_FAKE_BLAS");
  CHECK(found.score.loss == expected.score.loss);
  CHECK(found.held_out.loss == expected.held_out.loss);
  for (std::size_t t = 0; t < expected.tensors.size(); ++t) {
    CAPTURE(expected.tensors[t].name);
    CHECK(found.tensors[t].values == expected.tensors[t].values);
  }
}

TEST_CASE("moments in the host's memory take none of the GPU's, and train to the same bits") {
  Task task = on_text();
  const auto plain = make_gpu();
  const Trained expected = train_alone(*plain, {.buckets = 0}, {}, task);
  task.offload.optimizer_is_on_host = true;
  const auto offloading = make_gpu();
  const Trained found = train_alone(*offloading, {.buckets = 0}, {}, task);
  CHECK(found.score.loss == expected.score.loss);
  std::size_t parameters = 0;
  for (std::size_t t = 0; t < expected.tensors.size(); ++t) {
    CAPTURE(expected.tensors[t].name);
    CHECK(found.tensors[t].values == expected.tensors[t].values);
    parameters += expected.tensors[t].values.size();
  }
  CHECK(plain->most_allocated() - offloading->most_allocated() >= 2 * sizeof(float) * parameters);
}

TEST_CASE("moments in files take none of the GPU's memory, and train to the same bits") {
  const OptimizerOptions adamw{.rule = OptimizerOptions::Rule::adamw};
  for (Task task : {on_images(), on_text()}) {
    const auto plain = make_gpu();
    const Trained expected = train_alone(*plain, {.buckets = 0}, adamw, task);
    task.offload.optimizer = std::filesystem::temp_directory_path();
    const auto offloading = make_gpu();
    const Trained found = train_alone(*offloading, {.buckets = 0}, adamw, task);
    CHECK(found.score.loss == expected.score.loss);
    for (std::size_t t = 0; t < expected.tensors.size(); ++t) {
      CAPTURE(expected.tensors[t].name);
      CHECK(found.tensors[t].values == expected.tensors[t].values);
    }
    CHECK(plain->most_allocated() > offloading->most_allocated());
    CHECK_THROWS_WITH_AS(
        train_alone(*offloading, {.buckets = 0}, {.rule = OptimizerOptions::Rule::lamb}, task),
        doctest::Contains("a GPU cannot update LAMB's states in files"), UsageError);
  }
}

TEST_CASE("a step leaves weights in bf16 as it leaves them in float32, and no pass rounds them") {
  setenv("DTRAIN_FAKE_BLAS", "1", 1);
  const Task task = on_text("gpt2", 41);
  const auto gpu = make_gpu();
  unsetenv("DTRAIN_FAKE_BLAS");
  for (const auto rule : {OptimizerOptions::Rule::sgd, OptimizerOptions::Rule::adamw,
                          OptimizerOptions::Rule::lamb, OptimizerOptions::Rule::muon}) {
    const auto alone = make_single_rank(gpu.get());
    Replica replica(fitted(task.model, task.data), {.rule = rule}, *gpu, *alone);
    replica.compute_in(Precision::bf16);
    replica.initialize(k_seed);
    TrainingStep training(*alone, replica, {.buckets = 0});
    Loader loader(task.data.train, *gpu, {6, 0, 1, k_seed, 0, 2}, {.leaves_gathering = true});
    for (const Batch& batch : loader) {
      training.run(batch);
    }
    training.settle();
    const HostView parameters(*gpu, replica.parameters);
    std::vector<std::uint16_t> found(parameters.values().size());
    std::vector<std::uint16_t> expected;
    gpu->stream().copy(replica.factors.memory(), found.data(), 2 * found.size());
    for (const float value : parameters.values()) {
      expected.push_back(Bf16::narrow(value));
    }
    CHECK(found == expected);
  }
}

TEST_CASE("a GPU that trained gives all back") {
  const std::size_t before = cuda_on_cpu::live();
  {
    const auto made_gpu = make_gpu();
    CudaDevice& gpu = *made_gpu;
    train_alone(gpu, {.buckets = 0});
    train_alone(gpu, {.buckets = 0}, {}, on_text());
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("two GPUs in one process learn what one with their global batch learns") {
  const auto made_one = make_gpu();
  CudaDevice& one = *made_one;
  const Trained alone = train_alone(one, {.buckets = 0});
  std::vector<Trained> together(2);
  run_replicas(2, CrossDeviceOps::shares, [&](Communicator& communicator) {
    const auto made_gpu = make_gpu(communicator.rank());
    CudaDevice& gpu = *made_gpu;
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

namespace {

/// While it lives, kernels take so many microseconds on each GPU, more or less.
struct KernelTimes {
  explicit KernelTimes(const char* of_gpus, int seed_ = 1)
      : times("DTRAIN_FAKE_KERNEL_US", of_gpus),
        seed("DTRAIN_FAKE_SEED", std::to_string(seed_).c_str()) {}
  Variable times;
  Variable seed;
};

/// Of each of two GPUs of unlike speed what its clock has read after so many steps, of kernels that
/// take time alone: computing takes this machine's, of which both GPUs have one.
struct Clocked {
  StepClock clock;
  std::vector<std::size_t> shares;
};
std::vector<Clocked> clock_two(std::int64_t steps, bool by_speed) {
  const Variable idle("DTRAIN_FAKE_IDLE", "1");
  const Dataset data = synthetic_dataset(96, 1);
  std::mutex mutex;
  std::map<int, Clocked> clocked;
  run_replicas(2, CrossDeviceOps::shares, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto gpu = make_gpu(rank);
    DeviceCommunicator of_gpu(communicator, *gpu);
    Replica replica(fitted(k_model, data), {}, *gpu, of_gpu);
    replica.attach(of_gpu);
    replica.initialize(k_seed);
    BatchSplit split(by_speed, 12, of_gpu);
    TrainingStep training(of_gpu, replica, {.buckets = 16 << 10}, &split);
    Loader loader(data.train, *gpu, {12, rank, 2, k_seed, 0, steps}, {.leaves_gathering = true});
    for (const Batch& batch : loader) {
      training.run(batch);
      if (training.has_new_shares()) {
        loader.set_share(split.first(), split.rows());
      }
    }
    training.settle();
    const std::lock_guard lock(mutex);
    clocked.emplace(rank, Clocked{training.clock(), split.all_rows()});
  });
  return {clocked.at(0), clocked.at(1)};
}

} // namespace

TEST_CASE("of two GPUs the slow one is seen to compute for longer, and the other to wait for it") {
  const KernelTimes times("20,10000");
  const auto clocked = clock_two(4, false);
  const StepClock& fast = clocked[0].clock;
  const StepClock& slow = clocked[1].clock;
  CHECK(fast.done().rows == 48);
  CHECK(slow.done().rows == 48);
  CHECK(slow.seconds_computing() > 4 * 8 * 5e-3); // A step is at least so many kernels.
  CHECK(slow.seconds_computing() > 2 * fast.seconds_computing());
  CHECK(fast.seconds_exposed() > 0.5 * slow.seconds_computing());
  for (const StepClock* clock : {&fast, &slow}) {
    CHECK(clock->seconds_under_way() > 0);
    CHECK(clock->seconds_under_way() >= clock->seconds_exposed());
  }
}

TEST_CASE("the slower one of two GPUs gets a smaller share of each batch") {
  const KernelTimes times("20,20000");
  const auto clocked = clock_two(12, true);
  CHECK(clocked[0].shares == clocked[1].shares);
  CHECK(clocked[0].shares[0] + clocked[0].shares[1] == 24);
  CHECK(clocked[0].shares[1] < 10);
}

TEST_CASE("GPUs of unlike speeds bring their buckets in the same order, and learn the same bits") {
  std::vector<Trained> expected;
  for (const auto ops : {CrossDeviceOps::shares, CrossDeviceOps::reduction_to_one,
                         CrossDeviceOps::hierarchical_copy}) {
    for (const int seed : {1, 2}) {
      CAPTURE(seed);
      const KernelTimes times(seed == 2 ? "300,20" : "20,300", seed);
      std::vector<Trained> found(2);
      run_replicas(2, ops, [&](Communicator& communicator) {
        const auto gpu = make_gpu(communicator.rank());
        DeviceCommunicator of_gpu(communicator, *gpu);
        Task task = on_images();
        task.steps = 2;
        found[static_cast<std::size_t>(communicator.rank())] =
            train_on(*gpu, of_gpu, {.buckets = 4 << 10}, {}, task);
      });
      expected = expected.empty() ? found : expected; // Of two values each way has the same sum.
      for (const Trained& one : found) {
        for (std::size_t t = 0; t < one.tensors.size(); ++t) {
          CHECK(one.tensors[t].values == expected[0].tensors[t].values);
        }
      }
    }
  }
}

TEST_CASE("GPUs that reach each other's memory sum in the tree to the bits of the host's tree") {
  Task task = on_images();
  task.steps = 1;
  for (const int replicas : {3, 4}) {
    CAPTURE(replicas);
    const Variable count("DTRAIN_FAKE_GPUS", std::to_string(replicas).c_str());
    std::vector<std::unique_ptr<CudaDevice>> gpus;
    std::vector<CudaDevice*> all;
    for (int replica = 0; replica < replicas; ++replica) {
      all.push_back(gpus.emplace_back(make_gpu(replica)).get());
    }
    const auto train = [&](PeerTree* tree) {
      std::vector<Trained> trained(all.size());
      run_replicas(replicas, CrossDeviceOps::hierarchical_copy, [&](Communicator& communicator) {
        const auto replica = static_cast<std::size_t>(communicator.rank());
        DeviceCommunicator of_gpu(communicator, *all[replica]);
        std::optional<PeerCommunicator> by_peers;
        if (tree != nullptr) {
          by_peers.emplace(of_gpu, *tree, communicator.rank());
        }
        Communicator& chosen = by_peers ? static_cast<Communicator&>(*by_peers) : of_gpu;
        trained[replica] = train_on(*all[replica], chosen, {.buckets = 4 << 10}, {}, task);
      });
      return trained;
    };
    const auto expected = train(nullptr);
    CHECK(let_peers_in(all).empty());
    CHECK(let_peers_in(all).empty()); // Asked once more, as by another run in this process.
    const KernelTimes times("20,300,50,100");
    {
      PeerTree tree(all);
      for (const Trained& found : train(&tree)) {
        for (std::size_t t = 0; t < found.tensors.size(); ++t) {
          CHECK(found.tensors[t].values == expected[0].tensors[t].values);
        }
      }
    }
  }
}

TEST_CASE("a sum from GPU to GPU ends where a replica fails, and is refused where they differ") {
  const auto first = make_gpu(0);
  const auto second = make_gpu(1);
  const std::vector<CudaDevice*> gpus = {first.get(), second.get()};
  REQUIRE(let_peers_in(gpus).empty());
  const auto run = [&](bool fails) {
    PeerTree tree(gpus);
    run_replicas(2, CrossDeviceOps::hierarchical_copy, [&](Communicator& communicator) {
      CudaDevice& gpu = *gpus[static_cast<std::size_t>(communicator.rank())];
      DeviceCommunicator of_gpu(communicator, gpu);
      PeerCommunicator by_peers(of_gpu, tree, communicator.rank());
      const std::span<float> values = by_peers.allocate_on_device(100);
      if (fails && communicator.rank() == 1) {
        throw Error("no more data");
      }
      by_peers.all_reduce(values.first(communicator.rank() == 0 ? 100 : 99), "gradients");
    });
  };
  CHECK_THROWS_WITH_AS(run(true), "no more data", Error);
  CHECK_THROWS_WITH_AS(run(false), doctest::Contains("the replicas' collectives differ"), Error);
}

TEST_CASE("what a stream is given is done when somebody waits for it, in the order of events") {
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
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

TEST_CASE("a kernel's time is read from events around it, and is there once it has passed") {
  const KernelTimes times("3000");
  const auto gpu = make_gpu();
  On<float> x(*gpu, {1.0F});
  const Buffer squares = gpu->allocate(1, DType::f64);
  const auto before = gpu->stream().record_timed();
  constexpr int k_kernels = 5;
  for (int i = 0; i < k_kernels; ++i) {
    gpu->kernels().squares(gpu->stream(), 1, x.data(), static_cast<double*>(squares.memory()));
  }
  const auto after = gpu->stream().record_timed();
  CHECK(!after->has_passed());
  after->wait();
  CHECK(after->has_passed());
  CHECK(after->seconds_since(*before) > k_kernels * 1.5e-3 - 1e-6);
  CHECK(after->seconds_since(*after) == 0);
}

TEST_CASE(
    "what is thrown while a step becomes a graph passes, and the next is a graph all the same") {
  const std::size_t before = cuda_on_cpu::live();
  {
    const auto made_gpu = make_gpu();
    Device& gpu = *made_gpu;
    On<float> x(gpu, {1.0F});
    const Buffer squares = gpu.allocate(1, DType::f64);
    bool throws = false;
    const auto step = [&] {
      gpu.stream().replay({1}, [&] {
        gpu.kernels().squares(gpu.stream(), 1, x.data(), static_cast<double*>(squares.memory()));
        if (throws) {
          throw Error("no more data");
        }
        gpu.kernels().normalise(gpu.stream(), 1, static_cast<double*>(squares.memory()), x.data());
      });
    };
    step();
    throws = true;
    CHECK_THROWS_WITH_AS(step(), "no more data", Error);
    throws = false;
    const int graphs = cuda_on_cpu::calls("cudaGraphLaunch");
    step();
    step();
    CHECK(cuda_on_cpu::calls("cudaGraphLaunch") == graphs + 2);
    CHECK(x.read()[0] == 1);
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("a GPU moves nothing to a file, and a plug-in of another build is not looked at") {
  const auto made_gpu = make_gpu();
  CHECK_THROWS_WITH_AS(made_gpu->move_to_file({}, "/scratch"),
                       doctest::Contains("=/scratch: a GPU cannot keep parameters in files"),
                       UsageError);
  CHECK(dtrain_cuda_device("0.0.9", nullptr, 9, nullptr) == nullptr);
}

TEST_CASE("what a GPU cannot be is said in one line") {
  const auto told = [](int index) {
    try {
      make_gpu(index);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(told(0).empty());
  CHECK(told(2) == "--device=cuda: there is no GPU 2 here, but 2, from 0 on");
  setenv("DTRAIN_FAKE_DRIVER", "0", 1);
  CHECK(told(0) == "--device=cuda: no NVIDIA driver on this machine; use --device=cpu");
  setenv("DTRAIN_FAKE_DRIVER", "12040", 1);
  CHECK(told(0).find("the driver is for CUDA 12.4, and CUDA 13.0 is needed") != std::string::npos);
  unsetenv("DTRAIN_FAKE_DRIVER");
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  CHECK_THROWS_WITH_AS(gpu.allocate(std::size_t{1} << 30, DType::f32),
                       doctest::Contains("gpu:0: no 4.00 GiB more, beside the 0.00 GiB that this "
                                         "process has there: of 0.25 GiB "),
                       Error);
}
#endif
