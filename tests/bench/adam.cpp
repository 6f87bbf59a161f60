// Adam over 10^8 parameters, a thread a part of them as ranks have it, and how fast these threads
// stream: STREAM's triad, a = b + s·c, over arrays as long. JSON lines: milliseconds an update, and
// GB/s of both, 28 bytes a parameter and 12 a triad's value. bench-adam THREADS
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "trainer/clock.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cpu/denormals.h"
#include "trainer/optim/optimizer.h"

namespace {

using trainer::Buffer;
using trainer::DType;

constexpr std::size_t k_parameters = 100'000'000;
constexpr int k_rounds = 7;

void triad(std::size_t n, float factor, const float* b, const float* c, float* a) {
  for (std::size_t i = 0; i < n; ++i) {
    a[i] = b[i] + factor * c[i];
  }
}

/// Seconds of the fastest round of `act(thread)` in all threads at once.
double best_seconds(std::size_t threads, const std::function<void(std::size_t)>& act) {
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < k_rounds; ++round) {
    const double begin = trainer::now();
    std::vector<std::thread> others;
    for (std::size_t thread = 1; thread < threads; ++thread) {
      others.emplace_back(act, thread);
    }
    act(0);
    for (std::thread& other : others) {
      other.join();
    }
    best = std::min(best, trainer::now() - begin);
  }
  return best;
}

/// What a rank has: its part of the parameters, gradients and moments.
struct Part {
  explicit Part(std::size_t count)
      : parameters(device.allocate(count, DType::f32)),
        gradients(device.allocate(count, DType::f32)),
        adam({.learning_rate = 1e-3}, parameters.span(), gradients.span(), device) {
    std::fill_n(gradients.data(), count, 0.5F);
  }

  trainer::CpuDevice device;
  Buffer parameters;
  Buffer gradients;
  trainer::Optimizer adam;
};

} // namespace

int main(int argc, char** argv) {
  trainer::flush_denormals();
  const std::size_t threads = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  const std::size_t count = k_parameters / threads / 16 * 16;
  std::vector<std::unique_ptr<Part>> parts;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    parts.push_back(std::make_unique<Part>(count));
  }
  const double update = best_seconds(threads, [&](std::size_t thread) {
    parts[thread]->adam.begin_step();
    parts[thread]->adam.update(0, count);
  });
  const double stream = best_seconds(threads, [&](std::size_t thread) {
    const Part& part = *parts[thread];
    triad(count, 0.5F, part.gradients.data(), part.adam.moments().front().values.memory.data(),
          part.parameters.data());
  });
  constexpr double k_giga = 1e9;
  const auto values = static_cast<double>(count * threads);
  fmt::print("{{\"threads\": {}, \"milliseconds\": {:.2f}, \"adam_gb_s\": {:.2f}, "
             "\"stream_gb_s\": {:.2f}}}\n",
             threads, 1e3 * update, 28 * values / update / k_giga, 12 * values / stream / k_giga);
}
