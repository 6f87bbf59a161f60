// What Slurm says of its jobs: the output of squeue, one line each, in a format that all versions
// have had since 14.
#pragma once

#include "backends/backend.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// For `squeue --noheader --format=`, with SLURM_TIME_FORMAT=%s. What may hold the mark is last.
inline constexpr const char* k_queue_format = "%i|%T|%r|%V|%S|%e|%N|%P|%k";

struct QueuedJob {
  std::string id;     ///< "123"
  std::string state;  ///< "PENDING"
  std::string reason; ///< "Resources"; empty: none.
  Time submitted = 0;
  Time starts = 0;   ///< Started, or is expected to; 0: not known.
  std::string nodes; ///< "node[1-3]"
  std::string partition;
  std::string comment;
};

/// Lines that are none are left out.
std::vector<QueuedJob> read_queue(std::string_view text);

/// What a state of Slurm's comes to. Empty of one that is not known.
struct State {
  std::string_view name;
  Phase phase;
  std::string_view why = ""; ///< For people, of one that is no failure of a rank's.
};

/// The state of that name; one that no table has is RUNNING's, as that ends nothing.
State state_of(std::string_view name);

/// A pending job's reason in words: "waits for free nodes (Resources)".
std::string reason_text(const QueuedJob& job);

} // namespace dtrain::slurm
