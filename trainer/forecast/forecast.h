// What a job would take: step time and samples/s of every strategy on a network that need not be
// there, from the measured speed of one worker and of one link.
//
// Letters: T a worker's computing a step, S the gradient's bytes, B a link's bandwidth, w workers,
// p parameter servers, each on a machine of its own.
//
// A step takes T + max(0, communication - overlap·T): `overlap` is the share of T behind which
// communication may hide (backward is about 2/3 of T; 0: nothing overlaps). Communication, of n
// ranks on h hosts and a latency L, of what the transports do (collectives/):
//
//   ring              2(n-1) steps of a chunk S/n, in k segments that are forwarded as they arrive,
//                     so that all but the latency of a segment hides: 2(n-1)·max(C, C/k + L),
//                     C = S/(nB)
//   direct            short buffers, whole to everyone: (n-1)·(S/B + L)
//   shared memory     each rank reads S and writes S of its share of the sums: 2·(S/B + L)
//   hierarchical      shared memory within a host, and a ring of h between them
//   parameter-server  w workers push S to p servers, S/p each, and pull it back, in k buckets of
//                     which one does not overlap: (1 + 1/k)·max(w/p, 1)·S/B + 2·L
//
// The best number of servers. A worker that has a server to itself communicates for c = 2S/B, push
// and pull. The model of Peng, Bao, Chen, Wu and Guo, "Optimus" (EuroSys 2018, section 3.2), that
// the servers' links are the bottleneck, gives with nothing overlapped
//
//   step(w, p) = T + c·w/p          for p ≤ w.
//
// With ξ = c / (c + T), the share of communication in such a worker's step, samples/s a machine
//
//   w / ((w + p)·step(w, p))        is greatest at  p/w = √(c/T) = √(ξ / (1 - ξ)):
//
// its inverse is (1 + p/w)·(T + c·w/p) = T + c + T·p/w + c·w/p, whose derivative in p/w is zero
// there. The same ratio is the best split of a fixed number of machines. As c grows past T a server
// a worker (p = w) is the most that helps: from there on each worker's own link is the bottleneck.
// The whole number is found by trying: all p up to w by the formula.
#pragma once

#include <string>
#include <vector>

namespace trainer {

struct Link {
  double latency = 0;   ///< Seconds.
  double bandwidth = 0; ///< Bytes a second, in each direction.
};

struct Network {
  int ranks = 1;
  int ranks_per_host = 1;
  Link inside{};  ///< Between ranks of a host.
  Link between{}; ///< For each host.

  int hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
};

/// How a step's gradients are carried.
enum class Carrying { ring, direct, shared_memory, hierarchical, parameter_server };

/// Seconds that it takes. Of `servers`, with which only parameter_server has to do.
double seconds_of(Carrying carrying, const Network& network, double bytes, int servers = 0);

struct ForecastInput {
  double gradient_bytes = 0;  ///< S
  double compute_seconds = 0; ///< T
  double batch_size = 64;     ///< Samples a worker and step.
  double overlap = 0;         ///< 0 to 1.
  Network network{};          ///< network.ranks workers.
};

struct ForecastRow {
  Carrying carrying = Carrying::ring;
  int servers = 0; ///< Only for the parameter server.
  double communication_seconds = 0;
  double step_seconds = 0;
  double samples_per_second = 0;
  double efficiency = 0; ///< Relative to w times one worker alone, 0 to 1.
};

struct Forecast {
  ForecastInput input;
  double communication_share = 0; ///< ξ
  int best_servers = 1;
  /// What this trainer can run on the network, its own choice first; then 1 and best_servers ps.
  std::vector<ForecastRow> rows;
  std::size_t best_row = 0; ///< The greatest samples/s a machine.
};

double communication_share(const ForecastInput& input);

/// Throws UsageError for values that make no sense, naming the one.
int best_servers(const ForecastInput& input);
Forecast make_forecast(const ForecastInput& input);

/// A table for people, one line per row, with the best one marked.
std::string forecast_text(const Forecast& forecast);

} // namespace trainer
