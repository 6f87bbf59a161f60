#include "backends/kubernetes/logs/pod_log.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/pod_status.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds k_retry_pause{300};
constexpr std::chrono::milliseconds k_grace_when_gone{2000};
constexpr int k_most_failures = 5;
constexpr std::chrono::milliseconds k_no_news{60'000};
/// A kubelet's answer in place of the log of a container that its runtime does not have.
constexpr std::string_view k_no_log = "unable to retrieve container logs for ";

/// RFC 3339 of the second that `time` lies in.
std::string second_text(Time time) {
  auto seconds = static_cast<std::time_t>(time / k_second);
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

Time second_of(Time time) { return time - time % k_second; }

} // namespace

PodLog::PodLog(ApiClient& api, LogMerge& merge, const json& pod, PodLogQuery query)
    : api_(api), merge_(merge), query_(std::move(query)),
      path_(fmt::format("{}/{}/log", pods_path(text_at(pod, "metadata/namespace")),
                        text_at(pod, "metadata/name"))),
      key_(text_at(pod, "metadata/uid")), instance_(instance_of(pod)) {
  merge_.open(key_, instance_, LogMerge::Clock::now());
  update(pod);
}

PodLog::~PodLog() {
  if (streaming_) {
    api_.http().close(stream_);
  }
}

void PodLog::update(const json& pod) {
  container_ = query_.container.empty() ? telling_container(pod) : query_.container;
  for (const char* list : {"status/initContainerStatuses", "status/containerStatuses"}) {
    for (const json& status : member(pod, list)) {
      if (text_at(status, "name") == container_) {
        const json& state = member(status, "state");
        started_ = started_ || state.contains("running") || state.contains("terminated");
        ended_ = ended_ || state.contains("terminated");
      }
    }
  }
  std::string phase = text_at(pod, "status/phase");
  ended_ = ended_ || phase == "Succeeded" || phase == "Failed";
}

void PodLog::pod_is_gone() {
  if (!give_up_at_) {
    ended_ = true;
    give_up_at_ = LogMerge::Clock::now() + k_grace_when_gone;
  }
}

void PodLog::finish(std::string lost) {
  lost_ = std::move(lost);
  done_ = true;
  if (streaming_) {
    api_.http().close(stream_);
    streaming_ = false;
  }
  merge_.close(key_);
}

void PodLog::open() {
  Query query = {{"container", container_}, {"timestamps", "true"}};
  if (query_.follow && !ended_) {
    query.emplace_back("follow", "true");
  }
  if (last_time_ != 0) {
    query.emplace_back("sinceTime", second_text(last_time_));
    skip_ = given_in_second_;
  } else {
    if (query_.tail >= 0) {
      query.emplace_back("tailLines", std::to_string(query_.tail));
    }
    if (query_.since != 0) {
      query.emplace_back("sinceTime", second_text(query_.since));
    }
  }
  partial_line_.clear();
  in_line_ = false;
  skip_of_line_ = given_of_line_;
  read_after_end_ = ended_;
  streaming_ = true;
  HttpRequest request = api_.request("GET", path_, query);
  request.accept = "*/*";
  stream_ = api_.http().open(request, {[this](std::string_view bytes) { return on_bytes(bytes); },
                                       [this](const HttpResponse& response) { on_end(response); }});
}

bool PodLog::on_bytes(std::string_view bytes) {
  // Keeps only incomplete lines: the buffers of a thousand Pods would add up.
  for (std::size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos;
       bytes.remove_prefix(end + 1)) {
    const std::string_view rest = bytes.substr(0, end);
    if (partial_line_.empty()) {
      on_line(rest);
    } else {
      on_line(std::exchange(partial_line_, {}).append(rest));
    }
  }
  partial_line_ += bytes;
  // A progress bar's line is shown while it grows.
  if (partial_line_.size() >= k_longest_line || partial_line_.find('\r') != std::string::npos) {
    on_line(std::exchange(partial_line_, {}), false);
  }
  return true;
}

void PodLog::on_line(std::string_view line, bool complete) {
  const bool begins = !std::exchange(in_line_, !complete);
  if (begins) { // Only a line's first piece has a time.
    drops_line_ = !takes_line(line);
  }
  if (drops_line_) {
    return;
  }
  const std::size_t again = std::min(skip_of_line_, line.size());
  line.remove_prefix(again);
  skip_of_line_ -= again;
  given_of_line_ += line.size();
  // A complete line is counted; of an incomplete one, a reopened stream skips the same length.
  if (complete) {
    given_in_second_ += counts_ ? 1 : 0;
    given_of_line_ = 0;
    skip_of_line_ = 0;
  }
  merge_.add(key_, last_time_, std::string(line), LogMerge::Clock::now(), complete);
}

/// Removes the time from a line. Returns false if the line was given before, or is too old.
/// Runtimes read stdout and stderr independently, so that a line may follow one that is slightly
/// younger.
bool PodLog::takes_line(std::string_view& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const Time time = parse_time(line.substr(0, space));
  counts_ = time >= second_of(last_time_);
  if (line.starts_with(k_no_log)) {
    unavailable_ = printable(line);
    return false;
  }
  if (time == 0) { // The API's own words in the stream, or a line that has no time.
    return true;
  }
  if (time < query_.since) {
    return false;
  }
  if (time > last_time_) { // It is new, even if a file that had been read was rotated away.
    if (second_of(time) != second_of(last_time_)) {
      given_in_second_ = 0;
      counts_ = true;
    }
    skip_ = 0;
    skip_of_line_ = 0;
    last_time_ = time;
  } else if (skip_ > 0) {
    --skip_;
    return false;
  }
  line.remove_prefix(std::min(space + 1, line.size()));
  return true;
}

void PodLog::on_end(const HttpResponse& response) {
  streaming_ = false;
  ApiResult result{response.status, json::parse(response.body, nullptr, false)};
  if (partial_line_.starts_with(k_no_log)) { // It does not end with a newline.
    unavailable_ = printable(std::exchange(partial_line_, {}));
  }
  const std::string unavailable = std::exchange(unavailable_, {});
  bool in_order = response.status == k_ok && response.error.empty() && unavailable.empty();
  if (in_order && (read_after_end_ || !query_.follow)) {
    if (!partial_line_.empty()) {
      on_line(std::exchange(partial_line_, {}));
    }
    finish();
  } else if (response.status == k_not_found) {
    finish();
  } else if (response.status == k_forbidden) {
    refused_ = result.message();
    finish();
  } else if (!in_order && (ended_ || !query_.follow) && ++failures_ >= k_most_failures) {
    finish(fmt::format("the log of {} cannot be read: {}", instance_,
                       !unavailable.empty()   ? unavailable
                       : response.status == 0 ? printable(response.error)
                                              : result.message()));
  } else {
    // Broken off, the server restarts, or the container has ended and its status is on the way:
    // wait for that, then read the rest.
    retry_at_ = LogMerge::Clock::now() + k_retry_pause;
  }
}

void PodLog::tend() {
  if (!refused_.empty()) {
    throw EngineError(fmt::format("{}: {} (to read logs, `get` on pods/log is needed)",
                                  api_.access().server.url, refused_));
  }
  if (done_) {
    return;
  }
  const bool is_late = give_up_at_ && LogMerge::Clock::now() >= *give_up_at_;
  const bool never_ran = !streaming_ && !started_ && (ended_ || !query_.follow);
  if (is_late || never_ran) {
    finish();
  } else if (!streaming_ && started_ && LogMerge::Clock::now() >= retry_at_) {
    open();
  }
}

std::chrono::milliseconds PodLog::next_tend() const {
  if (done_ || (!give_up_at_ && (streaming_ || !started_))) {
    return k_no_news;
  }
  auto next = give_up_at_ && streaming_ ? *give_up_at_ : retry_at_;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(next - LogMerge::Clock::now());
  return std::max(left, std::chrono::milliseconds{0});
}

} // namespace dtrain::kubernetes
