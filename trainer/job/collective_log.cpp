#include "trainer/job/collective_log.h"

#include <algorithm>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/files.h"

namespace trainer {
namespace {

/// "2026-11-21T13:05:07.123456Z"
std::string utc(Clock::time_point time) {
  const auto since = (std::chrono::system_clock::now() - (Clock::now() - time)).time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(since - seconds);
  return fmt::format("{:%FT%T}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     rest.count());
}

} // namespace

std::string step_text(std::int64_t step) {
  return step >= 0 ? fmt::format("at step {}", step) : "before its first step";
}

void TrackedPlace::update(Place now, Clock::time_point when) {
  if (now.begun != place.begun || now.ended != place.ended) {
    moved = when;
  }
  reported = when;
  place = std::move(now);
}

std::string Place::text() const {
  const std::string where = step_text(step);
  return begun == 0 ? where
                    : fmt::format("{}, {} {} (collective {})", where, waits() ? "in" : "after",
                                  last, begun);
}

void CollectiveLog::begin(std::uint64_t number, const Call& call, std::int64_t step) {
  Entry entry{.number = number,
              .op = call.op,
              .bytes = call.bytes,
              .wire = call.wire,
              .step = step,
              .entered = Clock::now()};
  std::copy_n(call.name.begin(), std::min(call.name.size(), entry.name.size() - 1),
              entry.name.begin());
  const std::lock_guard lock(mutex_);
  entries_.resize(k_entries);
  entries_[number % k_entries] = entry;
  begun_ = number;
  last_ = call.text;
}

void CollectiveLog::end(std::uint64_t number) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  while (ended_ < number) {
    Entry& entry = entries_[++ended_ % k_entries];
    if (entry.number == ended_) {
      entry.seconds = std::chrono::duration<double>(now - entry.entered).count();
    }
  }
}

Place CollectiveLog::place(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return {begun_, ended_, step, last_};
}

void CollectiveLog::write(const std::string& path) const {
  std::string text = "number,op,bytes,wire,name,step,entered,seconds\n";
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t first = begun_ > k_entries ? begun_ - k_entries : 0;
    for (std::uint64_t number = first + 1; number <= begun_; ++number) {
      const Entry& entry = entries_[number % k_entries];
      text += fmt::format("{},{},{},{},{},{},{},{}\n", number, entry.op, entry.bytes, entry.wire,
                          entry.name.data(), entry.step, utc(entry.entered),
                          entry.seconds < 0 ? std::string() : fmt::format("{:.6f}", entry.seconds));
    }
  }
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::optional<std::string> find_stall(std::span<const RankPlace> ranks, double timeout,
                                      const std::function<std::string(int)>& name) {
  const RankPlace* foremost = nullptr;
  for (const RankPlace& rank : ranks) {
    if (rank.still < timeout) {
      return std::nullopt;
    }
    if (rank.place.waits() && (foremost == nullptr || rank.place.begun > foremost->place.begun)) {
      foremost = &rank;
    }
  }
  if (foremost == nullptr) {
    return std::nullopt; // All ranks compute, which may take any time.
  }
  const std::string what =
      fmt::format("{} (collective {})", foremost->place.last, foremost->place.begun);
  std::vector<std::string> missing;
  std::size_t waiting = 0;
  for (const RankPlace& rank : ranks) {
    if (rank.place.begun < foremost->place.begun) {
      missing.push_back(fmt::format("{} is {}", name(rank.rank), rank.place.text()));
    } else if (rank.place.waits()) {
      ++waiting;
    }
  }
  if (missing.empty()) {
    return fmt::format("{} has been in {} for {:g} s, and every rank has entered it, but no data "
                       "arrives over their connections",
                       name(foremost->rank), what, timeout);
  }
  return fmt::format("{} rank{} waited for {:g} s in {}, which {} never entered: {}", waiting,
                     waiting == 1 ? " has" : "s have", timeout, what,
                     missing.size() == 1 ? "one" : fmt::format("{}", missing.size()),
                     fmt::join(missing, "; "));
}

} // namespace trainer
