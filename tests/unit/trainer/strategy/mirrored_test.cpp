#include "trainer/strategy/mirrored.h"

#include <array>
#include <atomic>
#include <cmath>

#include <doctest/doctest.h>

#include "../collectives/ranks.h"
#include "trainer/data/loader.h"
#include "trainer/errors.h"
#include "trainer/job/agreement.h"
#include "trainer/replica.h"
#include "trainer/strategy/multi_worker.h"

namespace trainer {
namespace {

const std::vector<CrossDeviceOps> k_all = {CrossDeviceOps::shares, CrossDeviceOps::reduction_to_one,
                                           CrossDeviceOps::hierarchical_copy};

TEST_CASE("replicas' sums are the same bits on all, whatever adds them up") {
  for (const CrossDeviceOps ops : k_all) {
    for (const int replicas : {1, 2, 3, 5}) {
      CAPTURE(replicas);
      std::vector<std::vector<float>> got(static_cast<std::size_t>(replicas));
      run_replicas(replicas, ops, [&](Communicator& communicator) {
        auto first = communicator.allocate(1000);
        auto second = communicator.allocate(7);
        for (int round = 0; round < 50; ++round) {
          std::fill(first.begin(), first.end(), 0.1F * static_cast<float>(communicator.rank() + 1));
          std::fill(second.begin(), second.end(), static_cast<float>(round));
          const auto a = communicator.start_all_reduce(first, "first", WireType::fp32);
          const auto b = communicator.start_all_reduce(second, "second", WireType::fp32);
          communicator.wait(a);
          communicator.wait(b);
        }
        auto& mine = got[static_cast<std::size_t>(communicator.rank())];
        mine.assign(first.begin(), first.end());
        mine.insert(mine.end(), second.begin(), second.end());
      });
      CHECK(got[0][999] == doctest::Approx(0.05 * replicas * (replicas + 1)));
      CHECK(got[0][1000] == doctest::Approx(49.0 * replicas));
      for (const auto& one : got) {
        CHECK(one == got[0]);
      }
    }
  }
}

/// Loss on the first 32 samples after some steps of the real model.
double train(int replicas, std::size_t batch_size, CrossDeviceOps ops) {
  const Dataset data = synthetic_dataset(4096, 3);
  std::vector<double> losses(static_cast<std::size_t>(replicas));
  run_replicas(replicas, ops, [&](Communicator& communicator) {
    Replica replica({}, 1e-3, portable_kernels(), communicator);
    replica.model.initialize(3);
    MultiWorker strategy(communicator, replica.optimizer, replica.gradients, 64 << 10);
    Loader loader(data.train, portable_kernels(),
                  {batch_size, communicator.rank(), communicator.world_size(), 3, 0, 20});
    for (const Batch& batch : loader) {
      strategy.step(replica.model, batch);
    }
    Score total;
    Loader held(data.train, portable_kernels(),
                {batch_size, 0, 1, 3, 0, static_cast<std::int64_t>(32 / batch_size)});
    for (const Batch& batch : held) {
      const Score score = replica.model.evaluate(batch);
      total.loss += score.loss;
      total.count += score.count;
    }
    CHECK(total.count == 32);
    losses[static_cast<std::size_t>(communicator.rank())] =
        total.loss / static_cast<double>(total.count);
  });
  for (const double loss : losses) {
    CHECK(loss == losses[0]);
  }
  return losses[0];
}

TEST_CASE("two replicas reach the loss of one with the same global batch to 1e-5") {
  const double one = train(1, 32, CrossDeviceOps::shares);
  for (const CrossDeviceOps ops : k_all) {
    CHECK(std::abs(train(2, 16, ops) - one) < 1e-5);
  }
}

/// What each of `workers` processes with two replicas ends with, as threads here.
std::vector<std::string> run_workers(int workers, const std::vector<int>& replicas,
                                     const std::function<void(Communicator&)>& body) {
  return test::run_ranks(workers, test::options_for(CommOptions::Transport::automatic),
                         [&](Communicator& between) {
                           const int own = replicas[static_cast<std::size_t>(between.rank())];
                           check_equal_replicas(own, between);
                           run_replicas(own, between, body);
                         });
}

TEST_CASE("sums over replicas of several workers are the same bits on all") {
  std::vector<std::vector<float>> got(6);
  const auto thrown = run_workers(3, {2, 2, 2}, [&](Communicator& communicator) {
    CHECK(communicator.world_size() == 6);
    const auto gradient = communicator.allocate(50'000);
    const auto loss = communicator.allocate(1);
    for (int round = 0; round < 30; ++round) {
      const auto mine = static_cast<float>(communicator.rank() + 1);
      std::fill(gradient.begin(), gradient.end(), 0.1F * mine);
      loss[0] = static_cast<float>(round);
      const auto a = communicator.start_all_reduce(gradient.first(20'000), "first");
      const auto b = communicator.start_all_reduce(gradient.subspan(20'000), "second");
      communicator.wait(a);
      communicator.wait(b);
      communicator.all_reduce(loss, "loss");
    }
    std::array<int, 3> from{communicator.rank(), 7, 9};
    communicator.broadcast(std::as_writable_bytes(std::span(from)), 3, "from");
    CHECK(from[0] == 3);
    communicator.barrier("end");
    auto& mine = got[static_cast<std::size_t>(communicator.rank())];
    mine.assign(gradient.begin(), gradient.end());
    mine.push_back(loss[0]);
  });
  CHECK(thrown == std::vector<std::string>(3));
  CHECK(got[0][49'999] == doctest::Approx(2.1));
  CHECK(got[0][50'000] == doctest::Approx(6 * 29));
  for (const auto& one : got) {
    CHECK(one == got[0]);
  }
}

TEST_CASE("workers with unlike numbers of replicas are both named, on all of them") {
  for (const std::string& text : run_workers(3, {2, 2, 1}, [](Communicator&) {})) {
    CAPTURE(text);
    CHECK(text.find("rank 0 (") != std::string::npos);
    CHECK(text.find("has 2, rank 2 (") != std::string::npos);
    CHECK(text.find("has 1; ") != std::string::npos);
  }
}

TEST_CASE("a replica that fails takes all replicas of all workers with it") {
  const auto thrown = run_workers(2, {2, 2}, [](Communicator& communicator) {
    const auto gradient = communicator.allocate(1000);
    for (int step = 0;; ++step) {
      if (step == 3 && communicator.rank() == 3) {
        throw DataError("the disk is on fire");
      }
      communicator.all_reduce(gradient, "gradient");
    }
  });
  CHECK(thrown[1] == "the disk is on fire");
  CHECK(thrown[0].find("rank 1 (") != std::string::npos);
}

TEST_CASE("a replica that fails takes the others with it, and its error is the one thrown") {
  for (const int failing : {0, 2}) {
    std::atomic<int> gave_up = 0;
    CHECK_THROWS_WITH_AS(run_replicas(3, CrossDeviceOps::shares,
                                      [&](Communicator& communicator) {
                                        if (communicator.rank() == failing) {
                                          throw DataError("the disk is on fire");
                                        }
                                        try {
                                          for (;;) {
                                            communicator.barrier("step");
                                          }
                                        } catch (const PeerError&) {
                                          ++gave_up;
                                          throw;
                                        }
                                      }),
                         "the disk is on fire", DataError);
    CHECK(gave_up == 2);
  }
}

TEST_CASE("devices are parsed, and what is none is refused") {
  CHECK(parse_devices("") == std::vector<std::string>{"cpu:0"});
  CHECK(parse_devices("cpu:0,cpu:7") == std::vector<std::string>{"cpu:0", "cpu:7"});
  for (const char* wrong :
       {"cpu", "cpu:", "cpu:0,", "cpu:0,cpu:0", "cpu:x", "gpu:0", "tpu:0", ","}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_devices(wrong), UsageError);
  }
  CHECK_THROWS_AS(parse_cross_device_ops("nccl"), UsageError);
}

} // namespace
} // namespace trainer
