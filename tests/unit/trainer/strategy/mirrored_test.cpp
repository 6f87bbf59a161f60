#include "trainer/strategy/mirrored.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

#include "../collectives/halves.h"
#include "../collectives/ranks.h"
#include "tests/unit/thread.h"
#include "tests/unit/waiting.h"
#include "trainer/collectives/agreement.h"
#include "trainer/collectives/in_process/in_process.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/training_step.h"

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
    CpuDevice device(portable_kernels());
    Replica replica({}, {}, device, communicator);
    replica.initialize(3);
    TrainingStep training(communicator, replica, {.buckets = 64 << 10});
    Loader loader(data.train, device,
                  {batch_size, communicator.rank(), communicator.world_size(), 3, 0, 20});
    for (const Batch& batch : loader) {
      training.run(batch);
    }
    Score total;
    const auto owner = replica.make_owner(communicator);
    Loader held(data.train, device,
                {batch_size, 0, 1, 3, 0, static_cast<std::int64_t>(32 / batch_size)});
    for (const Batch& batch : held) {
      replica.model->evaluate(batch, *owner, &total);
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

TEST_CASE("an all-reduce's two halves have its bits between replicas, of several workers too") {
  const auto check = [](Communicator& communicator) {
    if (const std::string wrong = test::wrong_halves(communicator); !wrong.empty()) {
      throw Error(wrong);
    }
  };
  for (const CrossDeviceOps ops : k_all) {
    for (const int replicas : {2, 3}) {
      run_replicas(replicas, ops, check);
    }
  }
  CHECK(run_workers(2, {2, 2}, check) == std::vector<std::string>(2));
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

TEST_CASE("a replica that fails just as another arrives leaves none waiting") {
  // The moment is a few instructions long: many attempts, with the failure a little later each.
  constexpr int k_attempts = 30'000;
  std::atomic<int> arriving = -1;
  std::atomic<int> attempts = 0;
  std::vector<std::unique_ptr<InProcessGroup>> groups(k_attempts);
  for (auto& group : groups) {
    group = std::make_unique<InProcessGroup>(2, CrossDeviceOps::shares);
  }
  unit::Thread failing([&] {
    for (int i = 0; i < k_attempts; ++i) {
      for (int spins = 0; arriving < i; ++spins) {
        if (spins > 1000) { // The other has no core.
          std::this_thread::yield();
        }
      }
      for (std::atomic<int> later = 0; later < i % 40; ++later) {
      }
      groups[static_cast<std::size_t>(i)]->fail(1, "the disk is on fire");
    }
  });
  unit::Thread waiting([&] {
    for (int i = 0; i < k_attempts; ++i) {
      arriving = i;
      CHECK_THROWS_AS(groups[static_cast<std::size_t>(i)]->communicator(0).barrier("step"),
                      PeerError);
      attempts = i + 1;
    }
  });
  int before = -1;
  Deadline deadline = after_seconds(0);
  for (int now = attempts; now < k_attempts; now = attempts) {
    if (now != before) {
      deadline = after_seconds(unit::k_patience);
    } else if (Clock::now() >= deadline) {
      FAIL_CHECK("replica 0 sleeps for ever at attempt ", now);
      std::abort(); // Nobody wakes it, so it cannot be waited for.
    }
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  waiting.join();
  failing.join();
}

TEST_CASE("replicas' sums of 16 bits are rounded as those between ranks") {
  constexpr std::size_t k_replicas = 3;
  constexpr std::size_t k_count = 100;
  std::vector<std::vector<float>> given(k_replicas, std::vector<float>(k_count));
  for (std::size_t r = 0; r < k_replicas; ++r) {
    for (std::size_t i = 0; i < k_count; ++i) {
      given[r][i] = std::sin(static_cast<float>(r * k_count + i));
    }
  }
  for (const WireType wire : {WireType::bf16, WireType::fp16}) {
    std::vector<float> expected(k_count);
    float* const to = expected.data();
    const std::array<const float*, k_replicas> from = {given[0].data(), given[1].data(),
                                                       given[2].data()};
    portable_wire_kernels(wire).sum_to_all({&to, 1}, from, k_count);
    for (const CrossDeviceOps ops : k_all) {
      CAPTURE(static_cast<int>(ops));
      std::vector<std::vector<float>> got(k_replicas);
      run_replicas(k_replicas, ops, [&](Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        got[rank] = given[rank];
        communicator.wait(communicator.start_all_reduce(got[rank], "gradient", wire));
      });
      std::vector<float> rounded(k_count);
      std::vector<std::uint16_t> halves(k_count);
      portable_wire_kernels(wire).narrow(halves.data(), got[0].data(), k_count);
      portable_wire_kernels(wire).widen(rounded.data(), halves.data(), k_count);
      CHECK(got[0] == rounded);
      CHECK(got[1] == got[0]);
      CHECK(got[2] == got[0]);
      if (ops != CrossDeviceOps::hierarchical_copy) { // Which adds in an order of its own.
        CHECK(got[0] == expected);
      }
    }
  }
}

/// Workers of whom this one waits in the network until it is let go.
class SlowNetwork final : public Communicator {
 public:
  std::atomic<bool> is_waiting = false;
  std::atomic<bool> may_go = false;
  std::atomic<int> started = 0;
  bool waited_in_vain = false;

  int rank() const noexcept override { return 0; }
  int world_size() const noexcept override { return 2; }
  std::string name(int) const override { return "a worker"; }
  std::string describe() const override { return "slow"; }
  Route route(std::size_t, WireType) const override { return {}; }
  std::span<float> allocate(std::size_t count) override {
    memory_.resize(count);
    return memory_;
  }
  using Communicator::start;
  Ticket start(Collective) override { return static_cast<Ticket>(started++); }
  void wait(Ticket ticket) override {
    is_waiting = true;
    const Deadline deadline = after_seconds(unit::k_patience);
    while (ticket == 0 && !may_go && !waited_in_vain) {
      waited_in_vain = Clock::now() >= deadline;
    }
  }
  void set_step(std::int64_t) noexcept override {}
  double seconds_waiting() const noexcept override { return 0; }

 private:
  std::vector<float> memory_;
};

TEST_CASE("a replica that waits for the network keeps none from starting the next sum") {
  SlowNetwork network;
  run_replicas(2, network, [&](Communicator& communicator) {
    std::vector<float> first(10, 1);
    std::vector<float> second(10, 2);
    if (communicator.rank() == 1) {
      communicator.start_all_reduce(first, "first");
      unit::wait_until([&] { return network.is_waiting.load(); });
      const auto ticket = communicator.start_all_reduce(second, "second");
      network.may_go = true;
      communicator.wait(ticket);
    } else {
      const auto a = communicator.start_all_reduce(first, "first");
      const auto b = communicator.start_all_reduce(second, "second");
      communicator.wait(a);
      communicator.wait(b);
    }
    CHECK(second[0] == 4);
  });
  CHECK(!network.waited_in_vain);
  CHECK(network.started == 2);
}

TEST_CASE("where some ranks have no GPU none computes on one, and all say why alike") {
  const auto told = [](const std::vector<bool>& have) {
    std::vector<std::string> why(have.size());
    test::run_ranks_cleanly(static_cast<int>(have.size()),
                            test::options_for(CommOptions::Transport::automatic),
                            [&](Communicator& between) {
                              const auto rank = static_cast<std::size_t>(between.rank());
                              why[rank] = why_no_gpus(have[rank], between);
                            });
    for (const std::string& one : why) {
      CHECK(one == why.front());
    }
    return why.front();
  };
  CHECK(told({true, true}) == "");
  CHECK(told({false, false, false}) == ""); // Nothing to say.
  CHECK(told({true, false}).starts_with("rank 1 ("));
  CHECK(told({true, false}).ends_with(" has none"));
  CHECK(told({false, true, true}).starts_with("rank 0 ("));
}

TEST_CASE("devices are parsed, and what is none is refused") {
  CHECK(parse_devices("").empty());
  CHECK(parse_devices("gpu:1,gpu:0") == std::vector<std::string>{"gpu:1", "gpu:0"});
  CHECK(parse_devices("cpu:0,cpu:7") == std::vector<std::string>{"cpu:0", "cpu:7"});
  for (const char* wrong :
       {"cpu", "cpu:", "cpu:0,", "cpu:0,cpu:0", "cpu:x", "cpu:0,gpu:0", "tpu:0", ","}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_devices(wrong), UsageError);
  }
  CHECK(parse_cross_device_ops("nccl") == CrossDeviceOps::nccl);
}

} // namespace
} // namespace trainer
