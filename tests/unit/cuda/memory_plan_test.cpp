// What a plan says that training takes of GPUs, faked, beside what it takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/cuda/shared_replica.h"
#include "trainer/forecast/memory_plan.h"

using namespace trainer;
using namespace trainer::test;
using namespace trainer::test::shared;
using unit::Variable;

namespace {

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

/// Trains, and checks what a GPU like this one took; returns it, in bytes.
std::size_t check_planned(const Run& run, int stage, CudaDevice& gpu) {
  const std::size_t planned =
      plan_memory(plan_of(run), stage, gpu).most() + kept_bytes(run.data, gpu);
  const std::size_t found = train(stage, run).most_allocated;
  CHECK(static_cast<double>(found) == doctest::Approx(static_cast<double>(planned)).epsilon(0.03));
  return found;
}

} // namespace

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
    std::size_t least = SIZE_MAX;
    for (int stage = 0; stage <= 4; ++stage) { // 4: stage 3 with its parameters on the host.
      CAPTURE(run->model.name);
      CAPTURE(stage);
      run->offload.parameters_are_on_host = stage == 4;
      const std::size_t found = check_planned(*run, std::min(stage, 3), *gpu);
      CHECK((found < least || !run->model.is_of_text())); // A perceptron needs all at once.
      least = found;
    }
    for (const bool is_on_host : {false, true}) {
      run->precision = Precision::bf16;
      run->offload.parameters_are_on_host = is_on_host;
      const auto in_bf16 = make_gpu();
      in_bf16->multiply_in(DType::bf16);
      check_planned(*run, 3, *in_bf16);
    }
    run->precision = Precision::fp32;
    run->offload.parameters_are_on_host = true;
    run->ranks = 1;
    for (const int stage : {0, 3, 4}) { // With its parameters on the host; 4: and its moments.
      CAPTURE(stage);
      run->offload.optimizer_is_on_host = stage == 4;
      const std::size_t found = check_planned(*run, std::min(stage, 3), *gpu);
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
    for (const int stage : {0, most_stage(rule)}) {
      CAPTURE(rule_title(rule));
      CAPTURE(stage);
      check_planned(run, stage, *gpu);
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
    const Bytes one = {train(0, run).most_allocated,
                       plan_memory(plan_of(run), 0, *gpu).step() + kept_bytes(run.data, *gpu)};
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
