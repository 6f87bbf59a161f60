// The steps of a submission as they are done, on stderr: a list with ticks on a terminal, with a
// bar where one takes long; elsewhere a plain line for what was brought or took long, and nothing
// for the rest.
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
