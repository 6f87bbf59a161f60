#include "trainer/run/gpu_judgement.h"

#include <doctest/doctest.h>

using namespace trainer;

namespace {

constexpr const char* k_model = "NVIDIA H100";

GpuMeasurement good(int index, const char* model = k_model) {
  return {.name = std::to_string(index),
          .model = model,
          .flops = 600 * k_teraflop,
          .memory_bytes = 3000 * k_gigabyte,
          .digest = 7,
          .products = 400,
          .entries = 64};
}

std::vector<GpuMeasurement> machine(int gpus) {
  std::vector<GpuMeasurement> all;
  for (int i = 0; i < gpus; ++i) {
    all.push_back(good(i));
  }
  return all;
}

std::vector<LinkMeasurement> links(std::size_t gpus) {
  std::vector<LinkMeasurement> all;
  for (std::size_t from = 0; from < gpus; ++from) {
    for (std::size_t to = 0; to < gpus; ++to) {
      if (from != to) {
        all.push_back({.from = from, .to = to, .kind = "peer", .bytes = 300 * k_gigabyte});
      }
    }
  }
  return all;
}

using Lines = std::vector<std::string>;

} // namespace

TEST_CASE("GPUs that differ by less than the tolerated share have no fault") {
  auto gpus = machine(4);
  gpus[3].flops *= 0.72;
  gpus[2].memory_bytes *= 0.72;
  auto pairs = links(4);
  pairs[0].bytes *= 0.72;
  CHECK(judge(gpus, pairs).all().empty());
  CHECK(judge(machine(1), {}).all().empty());
}

TEST_CASE("a GPU is slow beside the fastest of its own model") {
  auto gpus = machine(3);
  gpus[1].flops = 300 * k_teraflop;
  gpus.push_back(good(3, "NVIDIA L4"));
  gpus[3].flops = 60 * k_teraflop;
  const auto judgement = judge(gpus, {});
  CHECK(judgement.all().size() == 1);
  CHECK(
      judgement.faults[1] ==
      "GPU 1 (NVIDIA H100): it is slow: 300 TFLOP/s, where another GPU of its model does 600; see "
      "its clocks, temperature and power limit: nvidia-smi -q -i 1 -d PERFORMANCE, and end other "
      "programs on it");
  gpus[1] = good(1);
  gpus[2].memory_bytes = 1000 * k_gigabyte;
  CHECK(judge(gpus, {}).faults[2].starts_with(
      "GPU 2 (NVIDIA H100): its memory is slow: 1000 GB/s, where another GPU of its model does "
      "3000; "));
}

TEST_CASE("what a GPU computes wrong is said before that it is slow") {
  auto gpus = machine(3);
  gpus[0].incorrect = 2;
  gpus[0].flops = 1;
  gpus[1].changed = 3;
  gpus[2].error = "CUDA: work on a GPU: unknown error; see dmesg for an Xid error of the GPU";
  CHECK(judge(gpus, {}).all() ==
        Lines{"GPU 0 (NVIDIA H100): it computes wrong: 2 of 64 entries of a matrix product differ "
              "from the CPU's; do not train on it: hide it with CUDA_VISIBLE_DEVICES, and replace "
              "it",
              "GPU 1 (NVIDIA H100): it computes wrong: 3 of 400 repetitions of a matrix product "
              "gave other bits; do not train on it: hide it with CUDA_VISIBLE_DEVICES, and replace "
              "it",
              "GPU 2 (NVIDIA H100): CUDA: work on a GPU: unknown error; see dmesg for an Xid error "
              "of the GPU"});
}

TEST_CASE(
    "of GPUs of one model that compute other bits the fewer are wrong, and of two both may be") {
  auto gpus = machine(3);
  gpus[2].digest = 8;
  gpus.push_back(good(3, "NVIDIA L4"));
  gpus[3].digest = 9;
  const auto judgement = judge(gpus, {});
  CHECK(judgement.all().size() == 1);
  CHECK(judgement.faults[2].find("other bits than that of 2 GPUs of its model") !=
        std::string::npos);
  gpus.erase(gpus.begin());
  const auto two = judge(gpus, {});
  CHECK(two.all().size() == 2);
  CHECK(two.faults[0].find("one of them computes wrong") != std::string::npos);
  CHECK(two.faults[2].empty());
  gpus[1].incorrect = 1; // Which tells who it is.
  CHECK(judge(gpus, {}).faults[0].empty());
}

TEST_CASE("a link is slow beside others of its kind") {
  auto pairs = links(4);
  pairs[1].bytes = 100 * k_gigabyte; // 0 to 2.
  for (auto& pair : pairs) {
    if (pair.from + pair.to == 3) {
      pair.kind = "host";
      pair.bytes = 10 * k_gigabyte;
    }
  }
  const auto judgement = judge(machine(4), pairs);
  CHECK(judgement.all() ==
        Lines{"GPU 0 to GPU 2: copies are slow: 100 GB/s, where others of this kind (peer) do 300; "
              "nvidia-smi topo -m shows how they are connected"});
}

TEST_CASE("a GPU whose links are all slow is at fault, but of two nobody knows which") {
  auto pairs = links(3);
  for (auto& pair : pairs) {
    pair.bytes = pair.from == 1 || pair.to == 1 ? 20 * k_gigabyte : pair.bytes;
  }
  const auto judgement = judge(machine(3), pairs);
  CHECK(judgement.links.empty());
  CHECK(judgement.faults[1] ==
        "GPU 1 (NVIDIA H100): copies to and from it are slow: 20 GB/s at most, where others do "
        "300; see the speed and width of its link: nvidia-smi -q -i 1, and reseat it");
  auto two = links(2);
  two[1].bytes = 20 * k_gigabyte;
  CHECK(judge(machine(2), two).links.size() == 1);
  CHECK(judge(machine(2), two).faults == Lines{"", ""});
}

TEST_CASE("a copy that arrives changed, or does not arrive, is a link's fault") {
  auto pairs = links(2);
  pairs[0].is_intact = false;
  pairs[1].error = "CUDA: a copy: invalid argument";
  CHECK(judge(machine(2), pairs).links ==
        Lines{"GPU 0 to GPU 1: a copy arrived with other bits; see dmesg, and reseat both GPUs",
              "GPU 1 to GPU 0: the copy failed: CUDA: a copy: invalid argument"});
}
