#include "trainer/forecast/memory_plan.h"

#include <doctest/doctest.h>

#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

namespace {

MemoryPlanOptions options_for(int ranks) {
  return {.model = {.hidden = {1024, 1024, 1024, 1024}}, .ranks = ranks, .like = {.rows = 8}};
}

MemoryPlan plan(const MemoryPlanOptions& options, int stage) {
  CpuDevice device;
  return plan_memory(options, stage, device);
}

} // namespace

TEST_CASE("what a stage of ZeRO shares, a rank plans its part of") {
  const MemoryPlan whole = plan(options_for(4), 0);
  const auto p = static_cast<double>(whole.parameters);
  CHECK(whole.gradients == whole.parameters);
  CHECK(whole.moments == 2 * whole.parameters);
  CHECK(whole.rounded == 0);
  CHECK(whole.save == 0);
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    const MemoryPlan shared = plan(options_for(4), stage);
    CHECK(static_cast<double>(shared.moments) == doctest::Approx(p / 2).epsilon(0.01));
    CHECK(shared.activations == whole.activations);
    // A perceptron needs all of them at once; shared ones are counted in pages.
    CHECK(shared.parameters - whole.parameters < 4096);
    // Its own chunks, two buckets under way and what is being written.
    const double gradients = static_cast<double>(shared.gradients) / p;
    CHECK(gradients == doctest::Approx(stage == 1 ? 1 : 0.28).epsilon(0.05));
    CHECK(shared.step() < whole.step());
  }
}

TEST_CASE("one rank plans all for itself at every stage") {
  for (int stage = 0; stage <= 3; ++stage) {
    CHECK(plan(options_for(1), stage).step() == plan(options_for(1), 0).step());
  }
}

TEST_CASE("one rank whose parameters are offloaded plans the layers in use, and all else") {
  MemoryPlanOptions options = options_for(1);
  options.offload.parameters_are_on_host = true; // As any CPU's are.
  CHECK(plan(options, 3).stage == 0);
  options.offload.parameters = "/tmp";
  const MemoryPlan whole = plan(options, 0);
  const MemoryPlan offloaded = plan(options, 3);
  CHECK(offloaded.stage == 3);
  CHECK(offloaded.gradients - whole.gradients < 4096);
  const std::size_t passing = offloaded.moments - whole.moments; // Of the parameters' file.
  CHECK(passing == Pieces::of(whole.parameters / sizeof(float)).largest() * sizeof(float));
  CHECK(offloaded.start == whole.parameters + offloaded.moments);
}

TEST_CASE("a plan in 16 bits has what the model computes with besides") {
  MemoryPlanOptions options = options_for(2);
  options.precision = Precision::bf16;
  CHECK(plan(options, 0).rounded == plan(options, 0).parameters);
  // A perceptron needs all parameters at once: its copy, and what is gathered for it.
  const double shared = static_cast<double>(plan(options, 3).rounded);
  CHECK(shared ==
        doctest::Approx(1.5 * static_cast<double>(plan(options, 0).parameters)).epsilon(0.05));
}

TEST_CASE("gradients of several passes are all there at once, at every stage") {
  MemoryPlanOptions options = options_for(4);
  options.accumulates = true;
  CHECK(plan(options, 2).gradients > plan(options, 0).gradients - 4096);
}

TEST_CASE("of a transformer, stage 3 plans the layers in use, and the words all the time") {
  MemoryPlanOptions options{.model = {.name = "bert"}, .ranks = 8};
  options.model.transformer = {
      .layers = 12, .hidden = 128, .heads = 2, .inner = 512, .max_length = 32, .vocabulary = 1000};
  options.like = {.rows = 2};
  options.like[field::Name::ids].width = 32;
  options.like[field::Name::masked].width = 5;
  const MemoryPlan whole = plan(options, 0);
  const MemoryPlan shared = plan(options, 3);
  const double part =
      static_cast<double>(shared.parameters) / static_cast<double>(whole.parameters);
  CHECK(part > 1.0 / 8 + 2.0 / 13);
  CHECK(part < 0.5);
  CHECK(shared.start == whole.parameters + shared.moments);
}

TEST_CASE("a checkpoint is planned for where one is saved") {
  MemoryPlanOptions options = options_for(4);
  options.saves = true;
  const MemoryPlan whole = plan(options, 0);
  CHECK(whole.save > whole.step() + 3 * whole.parameters);
  CHECK(whole.most() == whole.save);
  const MemoryPlan shared = plan(options, 2);
  CHECK(shared.save < whole.save - 3 * whole.parameters);
}

TEST_CASE("the table has a line a stage, and says where the most is no step") {
  MemoryPlan plan{.stage = 3, .parameters = 1'000'000, .gradients = 2'000'000};
  plan.start = 4'000'000;
  CHECK(memory_plan_text({plan}, 500'000) ==
        "STAGE   PARAMETERS  GRADIENTS  OPTIMIZER  ACTIVATIONS  PROGRAM       MOST\n"
        "3              1.0        2.0        0.0          0.0      0.5        4.5 (2)\n"
        "(2) rank 0, while it initializes the weights; the others, and the steps, take the sum of "
        "the "
        "columns\n");
}
