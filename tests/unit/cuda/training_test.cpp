// The same training on a GPU, faked, and on the CPU: the path of a real GPU, up to the plug-in.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/cuda/trained.h"
#include "tests/unit/variable.h"
#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

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

TEST_CASE("a step on text is a graph too, and has the bits of one that is none") {
  const StepOptions options{.buckets = 0, .rows_at_once = 4, .clip_norm = 0.5};
  for (const std::string name : {"bert", "gpt2"}) {
    CAPTURE(name);
    Task task = on_text(name);
    task.steps = 9;
    task.precision = Precision::bf16;
    task.model.transformer.recompute = task.model.is_causal();
    const auto train = [&] {
      const auto gpu = make_gpu();
      return train_alone(*gpu, options, {}, task);
    };
    const auto direct = [&] {
      const Variable no_graphs("CUDA_LAUNCH_BLOCKING", "1");
      return train();
    }();
#ifndef DTRAIN_ON_GPU
    const int before = cuda_on_cpu::calls("cudaGraphLaunch");
#endif
    const Trained replayed = train();
#ifndef DTRAIN_ON_GPU
    CHECK(cuda_on_cpu::calls("cudaGraphLaunch") - before >= 4);
#endif
    CHECK(replayed.score.loss == direct.score.loss);
    REQUIRE(replayed.tensors.size() == direct.tensors.size());
    for (std::size_t t = 0; t < direct.tensors.size(); ++t) {
      CAPTURE(direct.tensors[t].name);
      CHECK(replayed.tensors[t].values == direct.tensors[t].values);
    }
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

/// Trains with and without what `offload` says, to the same bits; returns the bytes that it spares.
std::ptrdiff_t spared(const StepOptions& options, const OptimizerOptions& optimizer, Task task,
                      const Offload& offload) {
  const auto train = [&](std::ptrdiff_t& bytes) {
    const auto gpu = make_gpu();
    Trained trained = train_alone(*gpu, options, optimizer, task);
    bytes = static_cast<std::ptrdiff_t>(gpu->most_allocated());
    return trained;
  };
  std::ptrdiff_t plain = 0;
  const Trained expected = train(plain);
  task.offload = offload;
  std::ptrdiff_t offloading = 0;
  const Trained found = train(offloading);
  CHECK(found.score.loss == expected.score.loss);
  CHECK(found.held_out.loss == expected.held_out.loss);
  for (std::size_t t = 0; t < expected.tensors.size(); ++t) {
    CAPTURE(expected.tensors[t].name);
    CHECK(found.tensors[t].values == expected.tensors[t].values);
  }
  return plain - offloading;
}

/// Updated at once, and together; of one pass, and of several.
const std::vector<StepOptions> k_ways = {{.buckets = 1 << 12, .checks_overflow = false},
                                         {.buckets = 0, .clip_norm = 0.5},
                                         {.buckets = 1 << 12, .rows_at_once = 4},
                                         {.buckets = 1 << 14, .rows_at_once = 4, .clip_norm = 0.5}};

TEST_CASE("moments in the host's memory take little of the GPU's, and train to the same bits") {
  const Offload on_host{.optimizer_is_on_host = true};
  Task bf16 = on_text("gpt2");
  bf16.precision = Precision::bf16;
  for (const StepOptions& options : k_ways) {
    for (const Task& task : {on_images(), bf16}) {
      if (&options != &k_ways.front() && &options != &k_ways.back() && task.model.is_of_text()) {
        continue;
      }
      CAPTURE(options.buckets.bytes);
      CAPTURE(task.model.name);
      const auto parameters = static_cast<std::ptrdiff_t>(
          make_model(fitted(task.model, task.data), *make_gpu())->tensors().arena_size());
      constexpr std::ptrdiff_t k_moments = 2 * sizeof(float);
      CHECK(spared(options, {}, task, on_host) >= k_moments * parameters * 3 / 4);
    }
  }
  using Rule = OptimizerOptions::Rule;
  for (const Rule rule : {Rule::sgd, Rule::lamb, Rule::muon}) {
    CAPTURE(rule_title(rule));
    CHECK(spared(k_ways.back(), {.rule = rule}, on_images(), on_host) > 0);
  }
}

TEST_CASE("updates beside the next step have its bits, as late and as early as they may be") {
  const auto check = [] {
    for (const StepOptions& options : {k_ways.front(), k_ways.back()}) {
      spared(options, {}, on_text("gpt2"), {.optimizer_is_on_host = true});
    }
  };
  check();
  {
    const Variable is_early("DTRAIN_FAKE_EAGER", "1");
    check();
  }
  const Variable of_kernels("DTRAIN_FAKE_KERNEL_US", "50");
  const Variable of_copies("DTRAIN_FAKE_COPY_US", "200");
  check();
}

TEST_CASE("moments in files take none of the GPU's memory, and train to the same bits") {
  using Rule = OptimizerOptions::Rule;
  const Offload in_files{.optimizer = std::filesystem::temp_directory_path()};
  for (const auto& given : {std::pair{Rule::adamw, on_images()},
                            {Rule::adamw, on_text()},
                            {Rule::lamb, on_images()},
                            {Rule::muon, on_images()}}) {
    const Rule rule = given.first;
    CAPTURE(rule_title(rule));
    CHECK(spared(rule == Rule::adamw ? k_ways.front() : k_ways.back(), {.rule = rule}, given.second,
                 in_files) > 0);
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
#endif
