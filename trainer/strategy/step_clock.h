// Where the time of training steps goes, by the clock of the device that takes them.
//
// The parts of a step follow each other on the device's stream: it computes, waits for sums and
// updates. lap() ends a part where the stream ends now. The CPU has come there when lap() returns;
// a GPU comes there later, and a timed event records when. So the host reads a part's time once its
// event has passed, a step later or so, and waits for none. All times are of the host's clock,
// now(): those of a GPU count from an event that the host waited for at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "trainer/device/device.h"
#include "trainer/monitor/timeline.h"

namespace trainer {

/// What a rank has done, as far as its times have been read.
struct WorkDone {
  double seconds = 0; ///< Spent on input, and in forward and backward.
  std::size_t rows = 0;
};

class StepClock {
 public:
  enum class Part : std::uint8_t {
    compute, ///< Forward and backward.
    wait,    ///< For sums that computing did not hide.
    update,
  };

  /// `timeline`, if given, records the parts. Both outlive the StepClock. Waits for the device.
  explicit StepClock(Device& device, Timeline* timeline = nullptr);

  /// A step of so many rows begins, for whose batch the host has waited `seconds_input`.
  void begin(double seconds_input, std::size_t rows);
  /// The next part begins now at the earliest: what the host did since the last one is of none.
  void skip();
  /// Ends a part, which began where the last one ended. The event passes with it.
  std::shared_ptr<const Event> lap(Part part);
  /// The stream has come to where a sum among ranks starts. Sums end in the order they start.
  void start_sum();
  /// The stream has waited for the oldest sum, as lap(Part::wait) says.
  void end_sum();
  /// The host has waited so long, while the device had nothing to do.
  void add_wait(double seconds) { seconds_exposed_ += seconds; }

  /// How many points of the stream have been marked so far.
  std::uint64_t marked() const { return read_ + marks_.size(); }
  /// Reads the times of the first `count` points, which have passed.
  void read(std::uint64_t count);
  /// Reads the times of those that have passed; false: there are more. It asks the device.
  bool read_passed();

  const WorkDone& done() const { return done_; }
  double seconds_input() const { return seconds_input_; }
  double seconds_computing() const { return done_.seconds - seconds_input_; }
  /// Total time in which gradients were under way, from the first bucket's start to the last one's
  /// end; and the part of it that the rank waited, which computing did not hide.
  double seconds_under_way() const { return seconds_under_way_; }
  double seconds_exposed() const { return seconds_exposed_; }

 private:
  enum class Kind : std::uint8_t { begin, skip, lap, start_sum, end_sum };
  struct Mark {
    Kind kind;
    Part part = Part::compute;
    std::shared_ptr<const Event> event; ///< Null: `at` is its time.
    double at = 0;
    WorkDone of_batch = {}; ///< begin: seconds of input, and rows.
  };
  std::shared_ptr<const Event> mark(Mark mark);
  void read_one(const Mark& mark);
  double time_of(const Mark& mark);
  void end_part(Part part, double at);

  Device& device_;
  Timeline* timeline_;
  std::deque<Mark> marks_; ///< Not read yet, in the stream's order.
  std::uint64_t read_ = 0;
  std::shared_ptr<const Event> last_event_; ///< The last that was read,
  double last_event_at_ = 0;                ///< and its time.
  double part_began_ = 0;
  std::deque<double> sums_; ///< When those under way started.
  double first_sum_ = 0;    ///< When the first of them, and those that ended meanwhile, started.
  double network_free_ = 0; ///< When the last sum ended.
  WorkDone done_;
  double seconds_input_ = 0;
  double seconds_under_way_ = 0;
  double seconds_exposed_ = 0;
};

} // namespace trainer
