#include "trainer/run/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "trainer/clock.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/device/device.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/training_step.h"
#include "trainer/version.h"

namespace trainer {
namespace {

constexpr std::size_t k_samples = 60'000;
constexpr int k_windows = 5;
constexpr std::int64_t k_most_warm_up_steps = 50;
constexpr double k_warm_up_seconds = 0.5;
constexpr std::int64_t k_least_steps = 2;

/// CPU time of this thread.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Runs one rank, in its own thread.
void benchmark_rank(const RunOptions& options, double seconds, const Rank& which) {
  Device& device = which.device;
  Communicator& communicator = which.communicator;
  const int rank = communicator.rank();
  const int ranks = communicator.world_size();
  const auto batch_size =
      static_cast<std::size_t>(options.batch_size() * options.accumulation_steps);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const Dataset data = synthetic_for(options.model, k_samples, seed);
  set_matmul_precision(device, options.matmul_precision);
  Replica replica(fitted(options.model, data), options.optimizer, device, communicator,
                  {options.zero_stage, options.step.buckets}, options.offload);
  replica.compute_in(options.precision);
  replica.attach(communicator);
  replica.initialize(seed);
  replica.optimizer.set_state(0, 0, first_loss_scale(options.step.loss_scale));
  TrainingStep training(communicator, replica, options.step);
  Loader loader(data.train, device, {batch_size, rank, ranks, seed, 0, INT64_MAX},
                {.leaves_gathering = true});
  auto batch = loader.begin();
  const auto run = [&](std::int64_t steps) {
    const double started = now();
    for (std::int64_t i = 0; i < steps; ++i, ++batch) {
      training.run(*batch);
    }
    training.settle();
    return now() - started;
  };
  run(1);
  auto warm_up = std::clamp(static_cast<std::int64_t>(k_warm_up_seconds / run(1)), std::int64_t{1},
                            k_most_warm_up_steps);
  communicator.broadcast(std::as_writable_bytes(std::span(&warm_up, 1)), 0, "steps");
  run(warm_up);
  const double seconds_a_step = run(warm_up) / static_cast<double>(warm_up);
  auto steps = std::max(k_least_steps, static_cast<std::int64_t>(seconds / seconds_a_step));
  communicator.broadcast(std::as_writable_bytes(std::span(&steps, 1)), 0, "steps");

  const bool is_text = data.train.source->kind().is_text();
  const double per_sample =
      is_text ? static_cast<double>(data.train.source->width(field::Name::ids)) : 1;
  std::array<double, k_windows> rates{};
  double per_cpu_second = 0;
  const double input_before = loader.seconds();
  const double started = now();
  for (double& rate : rates) {
    communicator.barrier("window");
    const double cpu = cpu_seconds();
    const double begin = now();
    run(steps);
    const double samples =
        per_sample * static_cast<double>(steps) * static_cast<double>(batch_size);
    per_cpu_second = std::max(per_cpu_second, samples / (cpu_seconds() - cpu));
    communicator.barrier("window");
    rate = samples * ranks / (now() - begin);
  }
  const double input = (loader.seconds() - input_before) / (now() - started);
  if (rank == 0) {
    std::sort(rates.begin(), rates.end());
    const double samples = rates.back() / per_sample / ranks; // A second and replica.
    fmt::print("{} dtrain {} {}{} world={} batch/replica={} best {:.0f} {}/s median {:.0f} "
               "({:.0f} steps/s, {:.1f} GFLOP/s a replica) | per CPU-second of rank 0: best {:.0f} "
               "| input-bound {:.1f} % | "
               "{}\n",
               options.model.name, trainer_version(),
               is_text ? "" : "hidden=", shape_text(options.model), ranks, batch_size, rates.back(),
               is_text ? "tokens" : "samples", rates[k_windows / 2],
               samples / static_cast<double>(batch_size), 1e-9 * samples * replica.model->flops(),
               per_cpu_second, 100 * input, device.kernels().name);
  }
}

} // namespace

void benchmark_training(const RankOptions& ranks, const RunOptions& options, double seconds) {
  run_ranks(
      ranks, [] {}, [&](const Rank& rank) { benchmark_rank(options, seconds, rank); });
}

void benchmark_gemm() {
  struct Shape {
    const char* name;
    std::size_t m, k, n;
    bool transposed; ///< A is read by columns.
  };
  constexpr std::array<Shape, 4> shapes = {{{"forward 64", 64, 784, 128, false},
                                            {"weight gradient 64", 784, 64, 128, true},
                                            {"forward 1024", 1024, 784, 128, false},
                                            {"weight gradient 1024", 784, 1024, 128, true}}};
  constexpr double k_seconds = 0.5;
  const CpuKernels& kernels = best_kernels();
  for (const Shape& s : shapes) {
    const Buffer a(s.m * s.k);
    const Buffer b(s.k * s.n);
    const Buffer c(s.m * s.n);
    std::fill_n(a.data(), a.size(), 0.5F);
    std::fill_n(b.data(), b.size(), 0.5F);
    const Gemm gemm{s.m,
                    s.k,
                    s.n / k_panel,
                    a.data(),
                    s.transposed ? 1 : s.k,
                    s.transposed ? s.m : 1,
                    b.data(),
                    c.data(),
                    k_panel,
                    s.m * k_panel,
                    false};
    double best = 1e9;
    for (const double end = now() + k_seconds; now() < end;) {
      const double started = now();
      kernels.gemm(gemm);
      best = std::min(best, now() - started);
    }
    fmt::print("gemm {} {}: {}x{}x{} {:.1f} GFLOP/s\n", kernels.name, s.name, s.m, s.n, s.k,
               2e-9 * static_cast<double>(s.m * s.n * s.k) / best);
  }
}

} // namespace trainer
