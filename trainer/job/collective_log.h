// The last collectives that a rank has entered and left. Comparing the ranks' places finds the rank
// that did not enter a collective in which others wait; on a failure each rank's log is written.
//
// Collectives are numbered from 1, in the order in which a rank begins them, the same on every
// rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/job/socket.h"

namespace trainer {

/// "at step 7"; "before its first step" for a negative one.
std::string step_text(std::int64_t step);

/// A collective, in the words that logs have for it.
struct Call {
  const char* op = "";   ///< "all_reduce"; of static life, as is `wire`.
  const char* wire = ""; ///< Type on the wire.
  std::size_t bytes = 0;
  std::string name{};
  std::string text{}; ///< "all_reduce 'grad1' of 4096 bytes"
};

/// A rank's position among its collectives.
struct Place {
  std::uint64_t begun = 0; ///< Entered, or started to be carried out beside the rank's own work.
  std::uint64_t ended = 0; ///< Left, and all before it.
  std::int64_t step = -1;
  std::string last{}; ///< The text of the one that was begun last.

  bool waits() const noexcept { return begun > ended; }
  /// "at step 7, in all_reduce 'grad' of 4096 bytes (collective 31)"; "after" if it has left it.
  std::string text() const;
};

/// The last collectives of one rank; any thread may call.
class CollectiveLog {
 public:
  static constexpr std::size_t k_entries = 1024;

  void begin(std::uint64_t number, const Call& call, std::int64_t step);
  void end(std::uint64_t number);
  Place place(std::int64_t step) const;

  /// Writes CSV: number, op, bytes, wire, name, step, entered (UTC), seconds; seconds are empty for
  /// a collective not left. Replaces the file. Throws Error.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::uint64_t number = 0;
    const char* op = "";
    std::size_t bytes = 0;
    const char* wire = "";
    std::int64_t step = -1;
    std::array<char, 48> name{};
    Clock::time_point entered{};
    double seconds = -1; ///< Until it was left.
  };

  mutable std::mutex mutex_;
  std::vector<Entry> entries_; ///< Number n at n % k_entries.
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  std::string last_;
};

/// The last reported place of a rank, and how long it has been there.
struct TrackedPlace {
  Place place{};
  Clock::time_point moved = Clock::now();
  Clock::time_point reported = moved;

  void update(Place now, Clock::time_point when = Clock::now());
  /// Seconds between the first and the last report from there.
  double still() const { return std::chrono::duration<double>(reported - moved).count(); }
};

struct RankPlace {
  int rank = 0;
  Place place{};
  double still = 0; ///< Seconds since it last began or ended one.
};

/// Describes a collective in which ranks have waited for `timeout` seconds while no rank began or
/// ended any: who never entered it. `name` gives "rank 2 (host-b, pid 7)".
std::optional<std::string> find_stall(std::span<const RankPlace> ranks, double timeout,
                                      const std::function<std::string(int)>& name);

} // namespace trainer
