// GPUs of one process, alike or not, that train together.
#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tests/unit/cuda/gpu.h"
#include "tests/unit/cuda/trained.h"
#include "tests/unit/variable.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/in_process/peer_tree.h"
#include "trainer/errors.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/mirrored.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

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

TEST_CASE("a bucket's sum comes back to a GPU before that has made the next bucket") {
  run_replicas(2, CrossDeviceOps::shares, [](Communicator& communicator) {
    const auto gpu = make_gpu(communicator.rank());
    DeviceCommunicator of_gpu(communicator, *gpu);
    constexpr std::size_t k_bucket = 1024;
    const std::span<float> gradients = of_gpu.allocate_on_device(2 * k_bucket);
    const auto other = gpu->make_stream();
    const auto first = of_gpu.start_all_reduce(gradients.first(k_bucket), "first");
    for (int work = 0; work < 200; ++work) { // To ask for an event carries a little of it out.
      gpu->stream().clear(gradients.data() + k_bucket, k_bucket * sizeof(float));
    }
    const auto made = gpu->stream().record();
    const auto second = of_gpu.start_all_reduce(gradients.last(k_bucket), "second");
    of_gpu.wait_in(*other, first);
    other->record()->wait();
    if (made->has_passed()) {
      throw Error("the first bucket's sum has waited for the second bucket");
    }
    of_gpu.wait_in(*other, second);
    other->record()->wait();
  });
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
