// ZeRO's stages on GPUs, faked: what a stage frees is unmapped, and nobody may touch it then
// (tests/cuda_on_cpu/virtual_memory.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <string>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/variable.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/nccl/nccl_group.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/feed.h"
#include "trainer/data/loader.h"
#include "trainer/data/synthetic_text.h"
#include "trainer/device/host_view.h"
#include "trainer/forecast/memory_plan.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/training_step.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

namespace {

constexpr std::uint64_t k_seed = 4;

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

Run on_images(std::vector<std::size_t> hidden = {40, 19}) {
  return {{.hidden = std::move(hidden)}, synthetic_dataset(96, 1)};
}

/// Gradients of two passes are added up, and clipped.
void clip(Run& run) {
  run.rows = 6;
  run.step = {.buckets = 1 << 14, .rows_at_once = 4, .clip_norm = 0.5};
}

Run on_text(const std::string& name) {
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

void round_parameters(CudaDevice& gpu, const Replica& replica) {
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

void train_on(CudaDevice& gpu, Communicator& communicator, int stage, const Run& run,
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

Learned train(int stage, const Run& run) {
  const Variable gpus("DTRAIN_FAKE_GPUS", std::to_string(run.ranks).c_str());
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

void check_stages(const Run& run, const std::vector<int>& stages = {1, 2, 3}) {
  const Learned whole = train(0, run);
  CHECK(std::isfinite(whole.loss));
  for (const int stage : stages) {
    CAPTURE(stage);
    CHECK(train(stage, run).has_the_bits_of(whole));
  }
}

/// On GPUs with pages, as the test has them, and on those whose driver cannot unmap memory.
void check_stage_3_with_and_without_pages(const Run& run) {
  check_stages(run, {3});
  const Variable no_pages("DTRAIN_FAKE_PAGE", "0");
  check_stages(run, {3});
}

} // namespace

TEST_CASE("every stage of ZeRO has the bits of stage 0 on GPUs, and gives all memory back") {
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384"); // Small, so that there are many.
  Run run = on_images();
  check_stages(run);
  run.ranks = 3;
  run.by_nccl = true;
  check_stages(run, {2, 3});
  Run clipped = on_images();
  clip(clipped);
  check_stages(clipped, {2});
  check_stages(on_text("bert"), {2, 3});
  check_stages(on_text("gpt2"), {3});
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("LAMB and Muon have the bits of stage 0 on GPUs, wherever a rank has its part") {
  using Rule = OptimizerOptions::Rule;
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384");
  const std::string folder = std::filesystem::temp_directory_path();
  for (const Rule rule : {Rule::lamb, Rule::muon}) {
    CAPTURE(rule_title(rule));
    Run run = on_images();
    run.optimizer = {.rule = rule, .weight_decay = 0.1};
    run.step.buckets = 1 << 13;
    const Learned whole = train(0, run);
    const auto check = [&](int stage, const Offload& offload) {
      CAPTURE(stage);
      Run offloaded = run;
      offloaded.offload = offload;
      CHECK(train(stage, offloaded).has_the_bits_of(whole));
    };
    check(1, {});
    check(2, {.optimizer_is_on_host = true});
    if (rule == Rule::muon) {
      check(0, {.optimizer_is_on_host = true});
      check(3, {});
      check(3, {.optimizer_is_on_host = true, .parameters_are_on_host = true});
      check(3, {.optimizer = folder, .parameters = folder});
    }
    run.ranks = 3;
    run.by_nccl = true;
    check_stages(run, {most_stage(rule)});
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("every stage of ZeRO has the bits of stage 0 on a GPU whose driver cannot unmap memory") {
  const Variable page("DTRAIN_FAKE_PAGE", "0");
  CHECK(make_gpu()->describe().find("; its driver cannot unmap memory, so ZeRO stages 2 and 3 free "
                                    "nothing") != std::string::npos);
  check_stages(on_images(), {3});
}

TEST_CASE("parameters in the host's memory have the bits of stage 0, and give all memory back") {
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384");
  Run run = on_images();
  run.offload.parameters_are_on_host = true;
  check_stage_3_with_and_without_pages(run);
  run.step.clip_norm = 0.5;
  run.ranks = 3;
  run.by_nccl = true;
  run.offload.optimizer_is_on_host = true;
  check_stages(run, {3});
  run.offload.optimizer_is_on_host = false;
  run.offload.optimizer = std::filesystem::temp_directory_path();
  check_stages(run, {3});
  Run text = on_text("bert");
  text.offload.parameters_are_on_host = true;
  check_stages(text, {3});
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE(
    "one GPU with its parameters in the host's memory has the bits of stage 0, in less memory") {
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384");
  Run run = on_images();
  run.ranks = 1;
  run.offload.parameters_are_on_host = true;
  check_stages(run, {3});
  clip(run);
  check_stages(run, {3});
  run.offload.optimizer = std::filesystem::temp_directory_path();
  check_stages(run, {3});
  Run text = on_text("gpt2");
  text.ranks = 1;
  text.offload.parameters_are_on_host = text.offload.optimizer_is_on_host = true;
  check_stages(text, {3});
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("parameters in files have the bits of stage 0 on GPUs, and give all memory back") {
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384");
  const std::string folder = std::filesystem::temp_directory_path();
  Run run = on_images();
  run.offload.parameters = folder;
  check_stage_3_with_and_without_pages(run);
  clip(run);
  run.offload.optimizer_is_on_host = true;
  run.ranks = 1;
  check_stages(run, {3});
  run.offload = {.optimizer = folder, .parameters = folder};
  check_stages(run, {3});
  run.ranks = 3;
  run.by_nccl = true;
  check_stages(run, {3});
  Run text = on_text("gpt2");
  text.offload = run.offload;
  check_stages(text, {3});
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("parameters in 16 bits have the same bits at stage 3 wherever a rank has its own") {
  const std::size_t before = cuda_on_cpu::live();
  const Variable page("DTRAIN_FAKE_PAGE", "16384");
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const std::string folder = std::filesystem::temp_directory_path();
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const std::string name = precision_name(precision);
    CAPTURE(name);
    // A step from rounded ones is stage 0's, which rounds no biases, gains or words.
    for (Run first : {on_images(), on_text("bert")}) {
      first.precision = precision;
      first.begins_rounded = true;
      first.steps = 1;
      check_stage_3_with_and_without_pages(first);
    }
    Run run = on_text("gpt2");
    run.precision = precision;
    const Learned learned = train(3, run);
    CHECK(learned.loss == doctest::Approx(train(0, run).loss).epsilon(0.01));
    const auto check = [&](const Offload& offload) {
      CAPTURE(offload.parameters_are_on_host);
      CAPTURE(offload.optimizer_is_on_host);
      run.offload = offload;
      CHECK(train(3, run).has_the_bits_of(learned));
    };
    check({.optimizer_is_on_host = true});
    check({.parameters = folder});
    run.by_nccl = precision == Precision::bf16;
    check({.parameters_are_on_host = true});
    check({.optimizer_is_on_host = true, .parameters_are_on_host = true});
    run.ranks = 1;
    run.by_nccl = false;
    run.offload = {.parameters_are_on_host = true};
    const Learned alone = train(3, run);
    run.offload = {.parameters = folder};
    CHECK(train(3, run).has_the_bits_of(alone));
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("stages 2 and 3 of ZeRO take the memory of the formulas on GPUs") {
  const Variable page("DTRAIN_FAKE_PAGE", "4096");
  Run run = on_images({128, 128, 128, 128});
  run.ranks = 4;
  run.step = {.buckets = 1 << 16};
  run.rows = 2;
  run.steps = 2;
  const Learned whole = train(0, run);
  const auto all = static_cast<double>(whole.parameters.size() * sizeof(float));
  const double besides = static_cast<double>(whole.most_allocated) - 4 * all;
  // The first layer's, by far the largest unit, its gradients, and the buckets under way.
  const double unit = 784 * 128 * sizeof(float);
  const double others = 2 * (1 << 16);
  const auto found = [&](int stage) {
    return static_cast<double>(train(stage, run).most_allocated) - besides;
  };
  CHECK(found(1) == doctest::Approx(2 * all + 2 * all / 4).epsilon(0.05));
  const double second = all + 3 * all / 4;
  CHECK(found(2) > 0.95 * second);
  CHECK(found(2) < 1.05 * (second + unit + others));
  const double third = 4 * all / 4 + 3 * all / 4; // A perceptron needs all parameters at once.
  CHECK(found(3) > 0.95 * third);
  CHECK(found(3) < 1.05 * (third + unit + others));
}

MemoryPlanOptions plan_of(const Run& run) {
  MemoryPlanOptions options{.model = fitted(run.model, run.data),
                            .optimizer = run.optimizer,
                            .precision = run.precision,
                            .buckets = run.step.buckets,
                            .offload = run.offload,
                            .ranks = run.ranks,
                            .like = {.rows = run.rows}};
  for (const FieldType& field : run.data.train.source->fields()) {
    options.like[field.name] = {nullptr, field.width, field.type};
  }
  return options;
}

TEST_CASE("what a plan says that a GPU takes, it takes") {
  const Variable page("DTRAIN_FAKE_PAGE", "4096");
  Run mlp = on_images({128, 64, 64});
  Run bert = on_text("bert");
  bert.model.transformer = {.layers = 3, .hidden = 64, .heads = 1, .inner = 128, .max_length = 16};
  for (Run* run : {&mlp, &bert}) {
    run->rows = 1;
    run->steps = 2; // The first one learns in which order units are needed.
    run->step = {.buckets = 1 << 16};
    const auto gpu = make_gpu();
    const SampleSource& source = *run->data.train.source;
    MemoryPlanOptions options = plan_of(*run);
    const std::size_t kept = is_kept(source, *gpu) ? source.stored_bytes() : 0;
    std::size_t least = SIZE_MAX;
    for (int stage = 0; stage <= 4; ++stage) { // 4: stage 3 with its parameters on the host.
      CAPTURE(run->model.name);
      CAPTURE(stage);
      options.offload.parameters_are_on_host = run->offload.parameters_are_on_host = stage == 4;
      const double planned =
          static_cast<double>(plan_memory(options, std::min(stage, 3), *gpu).most() + kept);
      const std::size_t found = train(std::min(stage, 3), *run).most_allocated;
      CHECK(static_cast<double>(found) == doctest::Approx(planned).epsilon(0.03));
      CHECK((found < least || !run->model.is_of_text())); // A perceptron needs all at once.
      least = found;
    }
    for (const bool is_on_host : {false, true}) {
      options.precision = run->precision = Precision::bf16;
      options.offload.parameters_are_on_host = run->offload.parameters_are_on_host = is_on_host;
      const auto in_bf16 = make_gpu();
      in_bf16->multiply_in(DType::bf16);
      const double planned = static_cast<double>(plan_memory(options, 3, *in_bf16).most() + kept);
      CHECK(static_cast<double>(train(3, *run).most_allocated) ==
            doctest::Approx(planned).epsilon(0.03));
    }
    options.precision = run->precision = Precision::fp32;
    options.offload.parameters_are_on_host = run->offload.parameters_are_on_host = true;
    run->ranks = options.ranks = 1;
    for (const int stage : {0, 3, 4}) { // With its parameters on the host; 4: and its moments.
      CAPTURE(stage);
      options.offload.optimizer_is_on_host = run->offload.optimizer_is_on_host = stage == 4;
      const double planned =
          static_cast<double>(plan_memory(options, std::min(stage, 3), *gpu).most() + kept);
      const std::size_t found = train(std::min(stage, 3), *run).most_allocated;
      CHECK(static_cast<double>(found) == doctest::Approx(planned).epsilon(0.03));
      CHECK((stage == 0 || found < least || !run->model.is_of_text()));
      least = found;
    }
  }
}

TEST_CASE("what a plan says that a GPU takes with LAMB or Muon, it takes") {
  const Variable page("DTRAIN_FAKE_PAGE", "4096");
  for (const auto rule : {OptimizerOptions::Rule::lamb, OptimizerOptions::Rule::muon}) {
    Run run = on_images({96, 96});
    run.rows = 1;
    run.steps = 1;
    run.step = {.buckets = 1 << 14};
    run.optimizer = {.rule = rule};
    const auto gpu = make_gpu();
    const SampleSource& source = *run.data.train.source;
    const std::size_t kept = is_kept(source, *gpu) ? source.stored_bytes() : 0;
    for (const int stage : {0, most_stage(rule)}) {
      CAPTURE(rule_title(rule));
      CAPTURE(stage);
      CHECK(
          static_cast<double>(train(stage, run).most_allocated) ==
          doctest::Approx(static_cast<double>(plan_memory(plan_of(run), stage, *gpu).most() + kept))
              .epsilon(0.03));
    }
  }
}

TEST_CASE("a plan counts what cuBLASLt's products take beside their operands, and not too much") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  Run run = on_text("bert");
  run.model.transformer = {.layers = 2, .hidden = 64, .heads = 1, .inner = 128, .max_length = 16};
  run.ranks = 1;
  run.rows = 8;
  run.steps = 1;
  struct Bytes {
    std::size_t found;
    std::size_t planned;
  };
  const auto bytes = [&](Precision precision, MatmulPrecision products) {
    run.precision = precision;
    run.products = products;
    const auto gpu = make_gpu();
    gpu->multiply_in(precision == Precision::fp16 ? DType::f16 : DType::bf16);
    gpu->set_matmul_precision(products);
    const SampleSource& source = *run.data.train.source;
    const std::size_t kept = is_kept(source, *gpu) ? source.stored_bytes() : 0;
    const Bytes one = {train(0, run).most_allocated,
                       plan_memory(plan_of(run), 0, *gpu).step() + kept};
    CHECK(static_cast<double>(one.found) ==
          doctest::Approx(static_cast<double>(one.planned)).epsilon(0.01));
    return one;
  };
  bytes(Precision::fp16, MatmulPrecision::highest);
  const Bytes bf16 = bytes(Precision::bf16, MatmulPrecision::highest);
  const Bytes fp8 = bytes(Precision::bf16, MatmulPrecision::fp8);
  const std::size_t copies = fp8.planned - bf16.planned; // Up to.
  CHECK(fp8.found - bf16.found <= copies);
  CHECK(2 * (fp8.found - bf16.found) > copies);
}

TEST_CASE("memory is zero when it is committed, and kept by who commits it again at once") {
  const std::size_t before = cuda_on_cpu::live();
  {
    const Variable page("DTRAIN_FAKE_PAGE", "4096");
    const auto gpu = make_gpu();
    constexpr std::size_t k_floats = 1024; // Of a page.
    const Buffer memory = gpu->allocate_paged(4 * k_floats);
    const auto part = [&](std::size_t first, std::size_t last) {
      return memory.span().subspan(first * k_floats, (last - first) * k_floats);
    };
    const std::size_t none = gpu->most_allocated();
    gpu->commit(part(0, 2));
    CHECK(gpu->most_allocated() - none == 2 * 4096);
    const std::vector<float> ones(2 * k_floats, 1.0F);
    std::vector<float> found(2 * k_floats);
    gpu->stream().copy(part(0, 2).data(), found.data(), part(0, 2).size_bytes());
    CHECK(std::all_of(found.begin(), found.end(), [](float value) { return value == 0; }));
    gpu->stream().copy(ones.data(), part(0, 2).data(), part(0, 2).size_bytes());

    // A page of which some is still committed stays.
    gpu->discard(part(0, 2).first(k_floats / 2));
    const int maps = cuda_on_cpu::calls("cuMemMap");
    gpu->discard(part(1, 2));
    gpu->commit(part(1, 2));
    CHECK(cuda_on_cpu::calls("cuMemMap") == maps);
    gpu->stream().copy(part(0, 2).data(), found.data(), part(0, 2).size_bytes());
    CHECK(found == ones);

    // What another page takes is the memory of this one, once the work on it is done.
    gpu->stream().clear(part(1, 2).data(), part(1, 2).size_bytes());
    const auto put = gpu->stream().record();
    gpu->discard(part(1, 2));
    CHECK(!put->has_passed());
    gpu->commit(part(3, 4));
    CHECK(put->has_passed());
    CHECK(cuda_on_cpu::calls("cuMemMap") == maps + 1);
    CHECK(gpu->most_allocated() - none == 2 * 4096);

    // Other memory takes what nobody has committed.
    gpu->discard(part(3, 4));
    const Buffer other = gpu->allocate(k_floats, DType::f32);
    CHECK(gpu->most_allocated() - none == 2 * 4096);
    gpu->commit(other.span()); // Of any other memory they do nothing.
    gpu->discard(other.span());
  }
  CHECK(cuda_on_cpu::live() == before);
}
