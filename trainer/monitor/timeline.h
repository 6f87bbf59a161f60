// What each rank did when, as a trace for chrome://tracing or ui.perfetto.dev.
//
// One process a rank, with two lanes: what the rank computes, and its gradients' all-reduces from
// start to end. Ranks note times on their own steady clocks; before writing, each finds out how far
// its clock is from rank 0's, as NTP does: there and back several times, of which the quickest
// counts. What is left of the error is at most half of that round trip.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"

namespace trainer {

class Timeline {
 public:
  enum class What : std::uint32_t { input, compute, wait, update, all_reduce, other };

  /// `begin` and `end` as now() gives them. From the half-millionth span on, it takes no more.
  void add(What what, double begin, double end);

  /// Collective. Rank 0 writes the spans of all ranks to `path`. Throws Error.
  void write(const std::string& path, Communicator& communicator) const;

 private:
  struct Span {
    What what;
    std::uint32_t unused = 0; ///< Spans travel as bytes: all of them have a value.
    double begin;
    double end;
  };
  std::vector<Span> spans_;

  static std::string json(int rank, const std::string& name, const std::vector<Span>& spans,
                          double offset, double origin);
};

/// Does nothing without a timeline.
inline void note(Timeline* timeline, Timeline::What what, double begin, double end) {
  if (timeline != nullptr) {
    timeline->add(what, begin, end);
  }
}

} // namespace trainer
