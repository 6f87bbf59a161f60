// The steps of a submission on stderr, as they are done: on a terminal a list with ticks, and with
// a bar for a long step; elsewhere a plain line for what was uploaded or took long, and nothing for
// the rest.
#pragma once

#include "backends/plan.h"
#include "cli/output/stream.h"

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace dtrain {

class Steps {
 public:
  using Clock = std::chrono::steady_clock;

  /// A quiet one writes nothing. `now` is for tests.
  Steps(Stream& err, bool quiet, std::function<Clock::time_point()> now = Clock::now);

  /// A step before those of the backend.
  void resolved(std::string_view text);

  void tell(const SubmitProgress& progress);

  /// The step at hand came to nothing.
  void fail();

 private:
  void line(std::string_view name, std::string_view text, bool good);
  void draw(const SubmitProgress& progress);

  Stream& err_;
  bool quiet_;
  bool on_terminal_;
  std::function<Clock::time_point()> now_;
  Clock::time_point begun_;
  std::string_view current_; ///< The step at hand; empty: none.
  bool drawn_ = false;       ///< The last line is a step's that is not done.
};

} // namespace dtrain
