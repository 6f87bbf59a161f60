#include "trainer/strategy/step_clock.h"

#include <algorithm>
#include <utility>

#include "trainer/clock.h"

namespace trainer {

StepClock::StepClock(Device& device, Timeline* timeline)
    : device_(device), timeline_(timeline), last_event_(device.stream().record_timed()) {
  last_event_->wait();
  last_event_at_ = part_began_ = now();
}

void StepClock::begin(double seconds_input, std::size_t rows) {
  const double at = now();
  note(timeline_, Timeline::What::input, at - seconds_input, at);
  mark({.kind = Kind::begin, .event = nullptr, .at = at, .of_batch = {seconds_input, rows}});
}

void StepClock::skip() { mark({.kind = Kind::skip, .event = nullptr, .at = now()}); }

std::shared_ptr<const Event> StepClock::lap(Part part) {
  return mark({.kind = Kind::lap, .part = part, .event = device_.stream().record_timed()});
}

void StepClock::start_sum() {
  mark({.kind = Kind::start_sum, .event = device_.stream().record_timed()});
}

void StepClock::end_sum() {
  mark({.kind = Kind::end_sum, .part = Part::wait, .event = device_.stream().record_timed()});
}

std::shared_ptr<const Event> StepClock::mark(Mark mark) {
  auto event = mark.event;
  marks_.push_back(std::move(mark));
  if (device_.is_host()) {
    read(marked());
  }
  return event;
}

void StepClock::read(std::uint64_t count) {
  for (; read_ < count; ++read_) {
    read_one(marks_.front());
    marks_.pop_front();
  }
}

bool StepClock::read_passed() {
  while (!marks_.empty()) {
    const Mark& next = marks_.front();
    if (next.event != nullptr && !next.event->has_passed()) {
      return false;
    }
    read(read_ + 1);
  }
  return true;
}

/// On the host's clock. A point that has passed lies behind: what the two clocks have drifted apart
/// since the start is taken back here.
double StepClock::time_of(const Mark& mark) {
  if (mark.event == nullptr) {
    return mark.at;
  }
  last_event_at_ = std::min(last_event_at_ + mark.event->seconds_since(*last_event_), now());
  last_event_ = mark.event;
  return last_event_at_;
}

void StepClock::end_part(Part part, double at) {
  const double seconds = std::max(at - part_began_, 0.0);
  if (part == Part::compute) {
    done_.seconds += seconds;
  } else if (part == Part::wait) {
    seconds_exposed_ += seconds;
  }
  note(timeline_,
       part == Part::compute ? Timeline::What::compute
       : part == Part::wait  ? Timeline::What::wait
                             : Timeline::What::update,
       at - seconds, at);
  part_began_ = at;
}

void StepClock::read_one(const Mark& mark) {
  const double at = time_of(mark);
  switch (mark.kind) {
  case Kind::begin:
    seconds_input_ += mark.of_batch.seconds;
    done_.seconds += mark.of_batch.seconds;
    done_.rows += mark.of_batch.rows;
    [[fallthrough]];
  case Kind::skip:
    part_began_ = std::max(part_began_, at);
    break;
  case Kind::lap:
    end_part(mark.part, at);
    break;
  case Kind::start_sum:
    if (sums_.empty()) {
      first_sum_ = at;
    }
    sums_.push_back(at);
    break;
  case Kind::end_sum:
    end_part(mark.part, at);
    // Sums travel one after the other, and so their spans lie.
    note(timeline_, Timeline::What::all_reduce, std::max(sums_.front(), network_free_), at);
    network_free_ = at;
    sums_.pop_front();
    if (sums_.empty()) {
      seconds_under_way_ += at - first_sum_;
    }
    break;
  }
}

} // namespace trainer
