#include "trainer/monitor/timeline.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>

#include "trainer/clock.h"
#include "trainer/files.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_spans = 500'000;
constexpr int k_clock_rounds = 16;
constexpr std::array<const char*, 6> k_names = {"input",  "forward and backward", "wait",
                                                "update", "all-reduce",           "other"};
constexpr int k_compute_lane = 0;
constexpr int k_network_lane = 1;

template <typename Value>
void share(Value& value, int root, Communicator& communicator) {
  communicator.broadcast(std::as_writable_bytes(std::span(&value, 1)), root, "timeline");
}

/// Offset from the clock of `rank` to that of rank 0; the same on every rank.
double offset_to_rank_0(int rank, Communicator& communicator) {
  double best = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int round = 0; round < k_clock_rounds; ++round) {
    double sent = now();
    share(sent, rank, communicator);
    double there = now();
    share(there, 0, communicator);
    double back = now();
    share(back, rank, communicator);
    if (back - sent < best) {
      best = back - sent;
      offset = there - (sent + back) / 2;
    }
  }
  return offset;
}

} // namespace

void Timeline::add(What what, double begin, double end) {
  if (spans_.size() < k_most_spans) {
    spans_.push_back({what, 0, begin, end});
  }
}

std::string Timeline::json(int rank, const std::string& name, const std::vector<Span>& spans,
                           double offset, double origin) {
  constexpr double k_microseconds = 1e6;
  const auto metadata = [&](const char* what, int lane, const std::string& text) {
    return nlohmann::json{{"ph", "M"},
                          {"pid", rank},
                          {"tid", lane},
                          {"name", what},
                          {"args", {{"name", text}}}}
               .dump() +
           ",\n";
  };
  std::string text = metadata("process_name", k_compute_lane, name) +
                     metadata("thread_name", k_compute_lane, "compute") +
                     metadata("thread_name", k_network_lane, "all-reduce");
  for (const Span& span : spans) {
    const auto what =
        std::min<std::size_t>(static_cast<std::size_t>(span.what), k_names.size() - 1);
    const int lane = span.what == What::all_reduce ? k_network_lane : k_compute_lane;
    text +=
        fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f}}},)"
                    "\n",
                    rank, lane, k_names.at(what), (span.begin + offset - origin) * k_microseconds,
                    (span.end - span.begin) * k_microseconds);
  }
  return text;
}

void Timeline::write(const std::string& path, Communicator& communicator) const {
  const bool writes = communicator.rank() == 0;
  std::string text;
  double origin = spans_.empty() ? 0 : spans_.front().begin;
  share(origin, 0, communicator);
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    const double offset = rank == 0 ? 0 : offset_to_rank_0(rank, communicator);
    std::uint64_t count = spans_.size();
    share(count, rank, communicator);
    std::vector<Span> spans = spans_;
    spans.resize(count);
    communicator.broadcast(std::as_writable_bytes(std::span(spans)), rank, "timeline");
    if (writes) {
      text += json(rank, communicator.name(rank), spans, offset, origin);
    }
  }
  if (writes) {
    text.resize(text.size() - 2); // The last comma.
    text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text + "\n]}\n";
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }
}

} // namespace trainer
