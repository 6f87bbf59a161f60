// Collectives by NCCL, faked (tests/cuda_on_cpu/nccl.cpp), between two GPUs of one process.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "trainer/collectives/nccl/nccl_group.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/errors.h"
#include "trainer/strategy/mirrored.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr int k_gpus = 2;
constexpr double k_patience = 20;

/// `body` for each of two GPUs, in a thread of its own.
template <typename Body>
void on_two_gpus(const Body& body) {
  const std::array gpus = {make_gpu(0), make_gpu(1)};
  std::string why;
  const DtrainNccl* table = gpus[0]->nccl(why);
  REQUIRE(table != nullptr);
  const auto alone = make_single_rank();
  NcclGroup group(*table, {gpus[0].get(), gpus[1].get()}, *alone, k_patience);
  CHECK(group.describe().find("NCCL 2.30.7, 2 ranks") == 0);
  run_replicas(k_gpus, CrossDeviceOps::shares, [&](Communicator& inner) {
    NcclCommunicator communicator(inner, group, inner.rank());
    try {
      body(*gpus[static_cast<std::size_t>(inner.rank())], communicator);
    } catch (const std::exception& error) {
      group.fail(error.what());
      throw;
    }
  });
}

std::vector<float> read(CudaDevice& gpu, std::span<const float> memory) {
  std::vector<float> values(memory.size());
  gpu.stream().copy(memory.data(), values.data(), memory.size_bytes());
  return values;
}

} // namespace

TEST_CASE("NCCL sums and gathers what is on two GPUs, whatever the length, and gives all back") {
  const std::size_t before = cuda_on_cpu::live();
  for (const WireType wire : {WireType::fp32, WireType::bf16, WireType::fp16}) {
    for (const std::size_t count : {1, 16, 17, 1000, 1024}) {
      CAPTURE(count);
      on_two_gpus([&](CudaDevice& gpu, Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const std::array parts = {numbers(count, 1), numbers(count, 2)};
        const std::span<float> memory = communicator.allocate_on_device(count);
        const auto run = [&](Collective::Kind kind) {
          gpu.stream().copy(parts[rank].data(), memory.data(), memory.size_bytes());
          communicator.wait_in(gpu.stream(), communicator.start(kind, memory, "numbers", wire));
          return read(gpu, memory);
        };
        const double tolerance = wire == WireType::fp32 ? 1e-6 : 2e-2;
        const auto sums = run(Collective::Kind::all_reduce);
        const auto scattered = run(Collective::Kind::reduce_scatter);
        const auto gathered = run(Collective::Kind::all_gather);
        const Chunks chunks(count, k_gpus);
        for (std::size_t i = 0; i < count; ++i) {
          const float sum = parts[0][i] + parts[1][i];
          const std::size_t owner = i < chunks.begin(1) ? 0 : 1;
          if (std::abs(sums[i] - sum) > tolerance ||
              (owner == rank && std::abs(scattered[i] - sum) > tolerance) ||
              std::abs(gathered[i] - parts[owner][i]) > tolerance) {
            throw Error(fmt::format("value {} of {}: {} {} {}", i, count, sums[i], scattered[i],
                                    gathered[i]));
          }
        }
      });
    }
  }
  CHECK(cuda_on_cpu::live() == before);
}

TEST_CASE("a sum by NCCL is of what the stream held before it, and before what the stream is given "
          "next") {
  on_two_gpus([&](CudaDevice& gpu, Communicator& communicator) {
    constexpr std::size_t k_count = 64;
    const std::span<float> memory = communicator.allocate_on_device(k_count);
    const Buffer ones = gpu.allocate_pinned(k_count, DType::f32);
    std::fill_n(ones.data(), k_count, 1.0F);
    gpu.stream().copy(ones.data(), memory.data(), memory.size_bytes());
    const auto ticket = communicator.start_all_reduce(memory, "ones");
    communicator.wait_in(gpu.stream(), ticket);
    const float expected = 2;
    if (read(gpu, memory)[0] != expected) {
      throw Error("the sum is not of what the stream held");
    }
  });
}

TEST_CASE("what the host holds goes by the host's communicator, in its order") {
  on_two_gpus([&](CudaDevice& gpu, Communicator& communicator) {
    const std::span<float> on_gpu = communicator.allocate_on_device(8);
    const std::span<float> on_host = communicator.allocate(8);
    on_host[3] = static_cast<float>(communicator.rank() + 1);
    const auto first = communicator.start_all_reduce(on_gpu, "GPU's");
    const auto second = communicator.start_all_reduce(on_host, "host's");
    communicator.wait_in(gpu.stream(), first);
    communicator.wait(second);
    if (on_host[3] != 3) {
      throw Error("the host's sum is wrong");
    }
  });
}

TEST_CASE("where a replica fails, the other's sums end and name what it failed of") {
  std::string told;
  CHECK_THROWS_WITH_AS(on_two_gpus([&](CudaDevice& gpu, Communicator& communicator) {
                         if (communicator.rank() == 1) {
                           throw Error("no more data");
                         }
                         try {
                           const auto memory = communicator.allocate_on_device(8);
                           communicator.wait_in(gpu.stream(),
                                                communicator.start_all_reduce(memory, "sum"));
                         } catch (const PeerError& error) {
                           told = error.what();
                           throw;
                         }
                       }),
                       "no more data", Error);
  CHECK(told == "no more data");
}

TEST_CASE("replicas that ask NCCL for unlike sums are told so") {
  CHECK_THROWS_WITH_AS(on_two_gpus([&](CudaDevice& gpu, Communicator& communicator) {
                         const auto memory = communicator.allocate_on_device(16);
                         const auto mine = memory.first(communicator.rank() == 0 ? 8 : 16);
                         communicator.wait_in(gpu.stream(),
                                              communicator.start_all_reduce(mine, "sum"));
                       }),
                       doctest::Contains("the replicas' collectives differ"), PeerError);
}
