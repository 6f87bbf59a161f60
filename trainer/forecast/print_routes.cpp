#include "trainer/forecast/print_routes.h"

#include <fmt/format.h>

#include <numeric>

#include "trainer/data/loader.h"
#include "trainer/monitor/console.h"
#include "trainer/run/replica.h"

namespace trainer {
namespace {

constexpr std::size_t k_least_size = 1024;
constexpr std::size_t k_largest_size = std::size_t{64} << 20;

/// `given`: bytes handed to the transport, if only MPI knows how they travel.
std::string sent_text(double sent, double given) {
  return sent < 0    ? "hands MPI " + with_commas(given) + " bytes"
         : sent == 0 ? "sends nothing"
                     : "sends " + with_commas(sent) + " bytes";
}

std::string size_text(std::size_t bytes) {
  return bytes >= std::size_t{1} << 20 ? fmt::format("{} MiB", bytes >> 20)
                                       : fmt::format("{} KiB", bytes >> 10);
}

void print_packs(const std::vector<std::size_t>& packs, WireType wire, int batch_size,
                 const Communicator& communicator) {
  const std::size_t all = std::accumulate(packs.begin(), packs.end(), std::size_t{0});
  fmt::print("ranks      {}, {} samples each\nnetwork    {}\n"
             "gradients  {} bytes of fp32 a step, sent as {}, in {} pack{}\n",
             communicator.world_size(), batch_size, communicator.describe(),
             with_commas(static_cast<double>(all)), wire_type_name(wire), packs.size(),
             packs.size() == 1 ? "" : "s");
  const auto given = [&](std::size_t bytes) {
    const std::size_t values = bytes / sizeof(float);
    return static_cast<double>(values * wire_size(wire));
  };
  double sum = 0;
  for (std::size_t i = 0; i < packs.size(); ++i) {
    const Route route = communicator.route(packs[i], wire);
    sum += route.sent;
    fmt::print("pack {:<5} {} bytes: {}; {}\n", i + 1, with_commas(static_cast<double>(packs[i])),
               route.how, sent_text(route.sent, given(packs[i])));
  }
  fmt::print("a step     rank 0 {}\n", sent_text(sum, given(all)));
}

/// Sizes are powers of two; those that take the same way are one line.
void print_sizes(WireType wire, const Communicator& communicator) {
  for (std::size_t from = k_least_size; from <= k_largest_size;) {
    const std::string how = communicator.route(from, wire).how;
    std::size_t to = from;
    while (to < k_largest_size && communicator.route(2 * to, wire).how == how) {
      to *= 2;
    }
    fmt::print("{:<10} {}\n", to == k_largest_size ? "larger" : "to " + size_text(to), how);
    from = 2 * to;
  }
}

void rank_routes(const RunOptions& options, const Rank& rank) {
  Communicator& communicator = rank.communicator;
  const std::size_t batch_size = options.step.rows_at_once;
  const WireType wire = options.step.buckets.wire;
  const Dataset data = synthetic_for(options.model, batch_size, 0);
  Replica replica(fitted(options.model, data), options.optimizer, rank.device, communicator);
  replica.initialize(0);
  TrainingStep training(communicator, replica, options.step);
  Loader loader(data.train, rank.device,
                {batch_size, communicator.rank(), communicator.world_size(), 0, 0, 1});
  for (const Batch& batch : loader) {
    training.run(batch);
  }
  if (communicator.rank() == 0) {
    print_packs(training.bucket_bytes(), wire, static_cast<int>(batch_size), communicator);
    print_sizes(wire, communicator);
  }
}

} // namespace

void print_routes(const RankOptions& ranks, const RunOptions& options) {
  run_ranks(
      ranks, [] {}, [&](const Rank& rank) { rank_routes(options, rank); });
}

} // namespace trainer
