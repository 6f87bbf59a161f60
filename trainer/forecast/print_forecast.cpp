#include "trainer/forecast/print_forecast.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/device/device.h"
#include "trainer/job/socket.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/training_step.h"

namespace trainer {
namespace {

constexpr int k_runs = 5;
constexpr std::size_t k_planned_samples = 10'000;
constexpr std::int64_t k_steps_a_run = 50;
constexpr std::size_t k_short_floats = 16;
constexpr int k_short_rounds = 50;
constexpr std::size_t k_long_floats = std::size_t{4} << 20;
constexpr double k_memory_latency = 1e-6; ///< To wake up a rank that polls for data.
/// Part of a step's arithmetic that gradients overlap.
constexpr double k_backward_share = 2.0 / 3;

/// Two ranks in threads of this process, over TCP.
Link measure_loopback(CommOptions comm) {
  Fd held = listen_at(resolve("127.0.0.1", 0).front());
  Cluster cluster;
  cluster.world_size = cluster.local_world_size = 2;
  cluster.master_addr = "127.0.0.1";
  cluster.master_port = local_address(held).port();
  held.reset();
  comm.transport = CommOptions::Transport::tcp;
  Link link;
  std::string failed;
  std::thread other([&] {
    try {
      Cluster second = cluster;
      second.rank = second.local_rank = 1;
      measure_link(*connect(second, comm));
    } catch (const std::exception& error) {
      failed = error.what();
    }
  });
  try {
    link = measure_link(*connect(cluster, comm));
  } catch (const std::exception& error) {
    failed = error.what();
  }
  other.join();
  if (!failed.empty()) {
    throw Error(fmt::format("--plan: cannot measure the link: {}", failed));
  }
  return link;
}

/// Between ranks of a host: how fast one core copies.
Link measure_memory() {
  std::vector<float> from(k_long_floats, 1.0F);
  std::vector<float> to(k_long_floats);
  double seconds = std::numeric_limits<double>::max();
  for (int run = 0; run < k_runs; ++run) {
    from[0] = static_cast<float>(run);
    const double started = now();
    std::copy(from.begin(), from.end(), to.begin());
    seconds = std::min(seconds, now() - started);
  }
  Link link;
  link.latency = k_memory_latency;
  link.bandwidth = static_cast<double>(k_long_floats * sizeof(float)) / seconds;
  return link;
}

} // namespace

double measure_step_seconds(const ModelOptions& model, std::size_t batch_size, Device& device) {
  const Dataset data = synthetic_for(model, k_planned_samples, 0);
  const auto alone = make_single_rank(&device);
  Replica replica(model, {}, device, *alone);
  replica.initialize(0);
  TrainingStep training(*alone, replica, {.buckets = 1});
  double best = std::numeric_limits<double>::max();
  for (int run = 0; run < k_runs; ++run) {
    Loader loader(data.train, device, {batch_size, 0, 1, 0, 0, k_steps_a_run});
    const double started = now();
    for (const Batch& batch : loader) {
      training.run(batch);
    }
    training.settle();
    best = std::min(best, (now() - started) / static_cast<double>(k_steps_a_run));
  }
  return best;
}

Link measure_link(Communicator& communicator) {
  const std::span<float> brief = communicator.allocate(k_short_floats);
  const std::span<float> large = communicator.allocate(k_long_floats);
  const double n = communicator.world_size();
  double latency = std::numeric_limits<double>::max();
  double seconds = std::numeric_limits<double>::max();
  for (int run = 0; run < k_runs; ++run) {
    communicator.barrier("plan");
    double started = now();
    for (int round = 0; round < k_short_rounds; ++round) {
      communicator.all_reduce(brief, "plan, short");
    }
    // Short buffers go round the ring whole, in n-1 hops.
    latency = std::min(latency, (now() - started) / k_short_rounds / (n - 1));
    started = now();
    communicator.all_reduce(large, "plan, long");
    seconds = std::min(seconds, now() - started);
  }
  Link link;
  link.latency = latency;
  link.bandwidth = 2 * (n - 1) / n * static_cast<double>(large.size_bytes()) / seconds;
  communicator.broadcast(std::as_writable_bytes(std::span(&link, 1)), 0, "plan");
  return link;
}

void print_forecast(const ForecastOptions& forecast, const RankOptions& ranks,
                    const RunOptions& options) {
  const Cluster& cluster = ranks.cluster;
  const std::unique_ptr<Device> device = make_device(ranks.devices.front());
  const std::size_t batch_size = options.step.rows_at_once;
  ForecastInput input;
  input.batch_size = static_cast<double>(batch_size);
  input.overlap = k_backward_share;
  input.network.ranks = forecast.workers;
  input.network.ranks_per_host = forecast.workers_per_host;
  const ModelOptions model = fitted(options.model, synthetic_for(options.model, 1, 0));
  input.gradient_bytes =
      static_cast<double>(make_model(model, *device)->tensors().arena_size() * sizeof(float));
  input.compute_seconds = measure_step_seconds(model, batch_size, *device);
  std::string where = "given";
  if (forecast.bandwidth <= 0 || forecast.latency <= 0) {
    if (cluster.world_size > 1) {
      input.network.between = measure_link(*connect(cluster, ranks.comm));
      where = fmt::format("measured between {} ranks", cluster.world_size);
    } else {
      input.network.between = measure_loopback(ranks.comm);
      where = "measured over TCP within this host; give --plan-bandwidth and --plan-latency for "
              "another network";
    }
  }
  if (forecast.bandwidth > 0) {
    input.network.between.bandwidth = forecast.bandwidth;
  }
  if (forecast.latency > 0) {
    input.network.between.latency = forecast.latency;
  }
  input.network.inside = measure_memory();
  if (cluster.rank == 0) {
    fmt::print("computing measured on {}; links {}\n{}", device->describe(), where,
               forecast_text(make_forecast(input)));
  }
}

} // namespace trainer
