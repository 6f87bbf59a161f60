#include "trainer/forecast/forecast.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/collectives/tcp/ring.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr double k_segments = 4; ///< And buckets.

void check(const ForecastInput& input) {
  const auto positive = [](double value, const char* what) {
    if (!(value > 0)) {
      throw UsageError(fmt::format("--plan: {} must be above 0, not {}", what, value));
    }
  };
  positive(input.gradient_bytes, "gradient bytes");
  positive(input.compute_seconds, "the computing time of a step");
  positive(input.batch_size, "a batch size");
  positive(input.network.between.bandwidth, "a bandwidth");
  if (!(input.overlap >= 0 && input.overlap <= 1)) {
    throw UsageError(fmt::format("--plan: the overlap must be from 0 to 1, not {}", input.overlap));
  }
  if (input.network.ranks_per_host > 1) {
    positive(input.network.inside.bandwidth, "a bandwidth inside hosts");
  }
}

double ring_seconds(int ranks, const Link& link, double bytes) {
  const double chunk = bytes / ranks / link.bandwidth;
  return 2 * (ranks - 1) * std::max(chunk, chunk / k_segments + link.latency);
}

double memory_seconds(const Link& link, double bytes) {
  return 2 * (bytes / link.bandwidth + link.latency);
}

const char* carrying_name(Carrying carrying) {
  switch (carrying) {
  case Carrying::ring:
    return "ring";
  case Carrying::direct:
    return "direct";
  case Carrying::shared_memory:
    return "shared memory";
  case Carrying::hierarchical:
    return "hierarchical";
  case Carrying::parameter_server:
    break;
  }
  return "parameter-server";
}

double own_link_seconds(const ForecastInput& input) {
  return 2 * input.gradient_bytes / input.network.between.bandwidth;
}

double step_seconds(const ForecastInput& input, double communication) {
  return input.compute_seconds +
         std::max(0.0, communication - input.overlap * input.compute_seconds);
}

ForecastRow make_row(const ForecastInput& input, Carrying carrying, int servers) {
  ForecastRow row;
  row.carrying = carrying;
  row.servers = servers;
  row.communication_seconds = seconds_of(carrying, input.network, input.gradient_bytes, servers);
  row.step_seconds = step_seconds(input, row.communication_seconds);
  row.samples_per_second = input.network.ranks * input.batch_size / row.step_seconds;
  row.efficiency = input.compute_seconds / row.step_seconds;
  return row;
}

/// What the transports would do, their own choice first.
std::vector<Carrying> carryings(const ForecastInput& input) {
  const Network& network = input.network;
  const bool is_short = input.gradient_bytes <= static_cast<double>(longest_whole(network.ranks));
  const Carrying over_tcp = is_short ? Carrying::direct : Carrying::ring;
  if (network.ranks_per_host == 1 || network.ranks == 1) {
    return {over_tcp};
  }
  return {network.hosts() == 1 ? Carrying::shared_memory : Carrying::hierarchical, over_tcp};
}

double rate_a_machine(const ForecastRow& row, int workers) {
  return row.samples_per_second / (workers + row.servers);
}

} // namespace

double seconds_of(Carrying carrying, const Network& network, double bytes, int servers) {
  switch (carrying) {
  case Carrying::ring: // Ranks of a host lie next to each other: each host's link is used once.
    return ring_seconds(network.ranks, network.between, bytes);
  case Carrying::direct:
    return (network.ranks - 1) * (bytes / network.between.bandwidth + network.between.latency);
  case Carrying::shared_memory:
    return memory_seconds(network.inside, bytes);
  case Carrying::hierarchical:
    return memory_seconds(network.inside, bytes) +
           ring_seconds(network.hosts(), network.between, bytes);
  case Carrying::parameter_server:
    break;
  }
  const double share = std::max(1.0, static_cast<double>(network.ranks) / servers);
  return (1 + 1 / k_segments) * share * bytes / network.between.bandwidth +
         2 * network.between.latency;
}

double communication_share(const ForecastInput& input) {
  const double c = own_link_seconds(input);
  return c / (c + input.compute_seconds);
}

int best_servers(const ForecastInput& input) {
  check(input);
  const int workers = input.network.ranks;
  const double c = own_link_seconds(input);
  int best = 1;
  double best_rate = 0;
  for (int servers = 1; servers <= workers; ++servers) {
    const double rate = 1 / (step_seconds(input, c * workers / servers) * (workers + servers));
    if (rate > best_rate) {
      best_rate = rate;
      best = servers;
    }
  }
  return best;
}

Forecast make_forecast(const ForecastInput& input) {
  check(input);
  Forecast forecast;
  forecast.input = input;
  forecast.communication_share = communication_share(input);
  forecast.best_servers = best_servers(input);
  for (const Carrying carrying : carryings(input)) {
    forecast.rows.push_back(make_row(input, carrying, 0));
  }
  forecast.rows.push_back(make_row(input, Carrying::parameter_server, 1));
  if (forecast.best_servers > 1) {
    forecast.rows.push_back(make_row(input, Carrying::parameter_server, forecast.best_servers));
  }
  const auto best = std::max_element(
      forecast.rows.begin(), forecast.rows.end(), [&](const ForecastRow& a, const ForecastRow& b) {
        return rate_a_machine(a, input.network.ranks) < rate_a_machine(b, input.network.ranks);
      });
  forecast.best_row = static_cast<std::size_t>(best - forecast.rows.begin());
  return forecast;
}

std::string forecast_text(const Forecast& forecast) {
  const ForecastInput& input = forecast.input;
  const Network& network = input.network;
  std::string text = fmt::format(
      "{} workers, {} a host: {:.3g} ms of computing a step, {:.3g} MB of gradients, "
      "{:.3g} GB/s and {:.3g} µs between hosts\n"
      "communication is {:.0f} % of the step of a worker with a server to itself: {} server{} "
      "for {} worker{}\n\n"
      "{:<24}{:>12}{:>12}{:>14}{:>12}\n",
      network.ranks, network.ranks_per_host, 1e3 * input.compute_seconds,
      1e-6 * input.gradient_bytes, 1e-9 * network.between.bandwidth, 1e6 * network.between.latency,
      100 * forecast.communication_share, forecast.best_servers,
      forecast.best_servers == 1 ? "" : "s", network.ranks, network.ranks == 1 ? "" : "s",
      "STRATEGY", "COMM(ms)", "STEP(ms)", "SAMPLES/S", "EFFICIENCY");
  for (std::size_t i = 0; i < forecast.rows.size(); ++i) {
    const ForecastRow& row = forecast.rows[i];
    const std::string name = row.servers == 0 ? std::string(carrying_name(row.carrying))
                                              : fmt::format("parameter-server, {} ps", row.servers);
    text +=
        fmt::format("{:<24}{:>12.3f}{:>12.3f}{:>14.0f}{:>10.0f} %{}\n", name,
                    1e3 * row.communication_seconds, 1e3 * row.step_seconds, row.samples_per_second,
                    100 * row.efficiency, i == forecast.best_row ? "  best a machine" : "");
  }
  return text;
}

} // namespace trainer
