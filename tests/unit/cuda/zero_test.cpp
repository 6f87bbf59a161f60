// ZeRO's stages on GPUs, faked: what a stage frees is unmapped, and nobody may touch it then
// (tests/cuda_on_cpu/virtual_memory.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/shared_replica.h"
#include "tests/unit/variable.h"
#include "trainer/data/feed.h"

using namespace trainer;
using namespace trainer::test;
using namespace trainer::test::shared;
using unit::Variable;

namespace {

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
