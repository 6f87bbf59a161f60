#include "trainer/collectives/device_communicator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ranks.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/strategy/mirrored.h"

namespace trainer {
namespace {

/// A device whose copies take as long as its seed says: its events pass after so many looks.
class UnlikeDevice final : public CpuDevice {
 public:
  explicit UnlikeDevice(std::uint32_t seed) : random_(seed) {}

  bool is_host() const override { return false; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<Slow>(random_); }

 private:
  class Later final : public Event {
   public:
    explicit Later(unsigned looks) : looks_(looks) {}
    bool has_passed() const override { return looks_ == 0 || --looks_ == 0; }
    void wait() const override { looks_ = 0; }
    double seconds_since(const Event& /*earlier*/) const override { return 0; }

   private:
    mutable unsigned looks_;
  };

  class Slow final : public Stream {
   public:
    explicit Slow(std::mt19937& random) : random_(random) {}
    std::unique_ptr<Event> record() override { return std::make_unique<Later>(random_() % 40); }
    std::unique_ptr<Event> record_timed() override { return record(); }
    void wait(const Event& event) override { event.wait(); }
    void copy(const void* from, void* to, std::size_t bytes) override {
      std::memcpy(to, from, bytes);
    }
    void clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }

   private:
    std::mt19937& random_;
  };

  std::mt19937 random_;
};

constexpr std::size_t k_values = 1000;
constexpr int k_rounds = 60;

} // namespace

TEST_CASE("replicas on devices of unlike speed bring their buckets in the same order") {
  for (const int replicas : {2, 3}) {
    CAPTURE(replicas);
    CHECK_NOTHROW(run_replicas(replicas, CrossDeviceOps::shares, [](Communicator& inner) {
      UnlikeDevice device(static_cast<std::uint32_t>(inner.rank()) + 1);
      DeviceCommunicator communicator(inner, device);
      const std::span<float> gradients = communicator.allocate_on_device(2 * k_values);
      for (int round = 0; round < k_rounds; ++round) {
        std::fill(gradients.begin(), gradients.end(), 1.0F);
        const auto first = communicator.start_all_reduce(gradients.first(k_values), "first");
        const auto second = communicator.start_all_reduce(gradients.subspan(k_values), "second");
        communicator.wait_in(device.stream(), first);
        communicator.wait_in(device.stream(), second);
        const auto sum = static_cast<float>(communicator.world_size());
        if (gradients.front() != sum || gradients.back() != sum) {
          throw Error(
              fmt::format("round {}: {} and {}", round, gradients.front(), gradients.back()));
        }
      }
    }));
  }
}

TEST_CASE("a broadcast and a barrier of a device's communicator take their turn behind its sums") {
  const CommOptions options = test::options_for(CommOptions::Transport::tcp);
  test::run_ranks_cleanly(2, options, [](Communicator& inner) {
    UnlikeDevice device(static_cast<std::uint32_t>(inner.rank()) + 7);
    DeviceCommunicator communicator(inner, device);
    const std::span<float> values = communicator.allocate_on_device(k_values);
    std::vector<float> told(1);
    for (int round = 0; round < k_rounds; ++round) {
      std::fill(values.begin(), values.end(), static_cast<float>(round));
      told[0] = static_cast<float>(communicator.rank());
      const auto sum = communicator.start_all_reduce(values, "values");
      communicator.broadcast(told, 1, "told");
      communicator.barrier("both");
      communicator.wait_in(device.stream(), sum);
      if (told[0] != 1 || values.front() != static_cast<float>(2 * round)) {
        throw Error(fmt::format("round {}: {} and {}", round, told[0], values.front()));
      }
      // What lies on the device goes the same way.
      std::fill(values.begin(), values.end(), static_cast<float>(communicator.rank() + round));
      communicator.broadcast(values, 0, "weights");
      if (values.back() != static_cast<float>(round)) {
        throw Error(fmt::format("round {}: {} on the device", round, values.back()));
      }
    }
  });
}

TEST_CASE(
    "of a reduce_scatter a device gets its own chunk back, and of an all_gather it gives it") {
  run_replicas(3, CrossDeviceOps::shares, [](Communicator& inner) {
    UnlikeDevice device(static_cast<std::uint32_t>(inner.rank()) + 3);
    DeviceCommunicator communicator(inner, device);
    const std::span<float> values = communicator.allocate_on_device(k_values);
    std::fill(values.begin(), values.end(), 2.0F);
    const Chunks chunks(k_values, communicator.world_size());
    communicator.wait(communicator.start_reduce_scatter(values, "gradients"));
    for (std::size_t i = 0; i < k_values; ++i) {
      const float expected = chunks.holding(i) == communicator.rank() ? 6.0F : 2.0F;
      if (values[i] != expected) {
        throw Error(fmt::format("value {} is {}", i, values[i]));
      }
    }
    communicator.wait(communicator.start_all_gather(values, "parameters"));
    if (values.front() != 6 || values.back() != 6) {
      throw Error("not gathered");
    }
  });
}

} // namespace trainer
