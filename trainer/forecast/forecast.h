// What a job would take: step time and samples/s of every strategy on a network that need not be
// there, from the measured speed of one worker and of one link.
//
// Letters: T a worker's computing a step, S the gradient's bytes, B a link's bandwidth, w workers,
// p parameter servers, each on a machine of its own.
//
// Collectives are simulated (simulate.h). A step takes T + max(0, communication - overlap·T):
// `overlap` is the share of T behind which communication may hide (backward is about 2/3 of T; 0:
// nothing overlaps).
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

#include "trainer/forecast/simulate.h"

namespace trainer {

struct ForecastInput {
  double gradient_bytes = 0;  ///< S
  double compute_seconds = 0; ///< T
  double batch_size = 64;     ///< Samples a worker and step.
  double overlap = 0;         ///< 0 to 1.
  Network network{};          ///< network.ranks workers.
};

struct ForecastRow {
  Schedule schedule = Schedule::ring;
  int servers = 0; ///< Only for the parameter server.
  double communication_seconds = 0;
  double step_seconds = 0;
  double samples_per_second = 0;
  double efficiency = 0; ///< Of w times one worker alone, 0 to 1.
};

struct Forecast {
  ForecastInput input;
  double communication_share = 0; ///< ξ
  int best_servers = 1;
  std::vector<ForecastRow>
      rows;                 ///< The schedules that fit the network, then 1 and best_servers ps.
  std::size_t best_row = 0; ///< The greatest samples/s a machine.
};

double communication_share(const ForecastInput& input);

/// Throws UsageError for values that make no sense, naming the one.
int best_servers(const ForecastInput& input);
Forecast make_forecast(const ForecastInput& input);

/// A table for people, a line a row, the best one marked.
std::string forecast_text(const Forecast& forecast);

} // namespace trainer
