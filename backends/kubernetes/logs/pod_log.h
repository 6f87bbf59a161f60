// The log of a Pod as a stream of the API, split into lines, and continued where it broke.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/logs/log_merge.h"

#include <optional>
#include <string>

namespace dtrain::kubernetes {

/// The query for each Pod's log.
struct PodLogQuery {
  std::string container; ///< Empty: the one that tells how the Pod fares.
  bool follow = false;
  std::int64_t tail = -1;
  Time since = 0;
};

class PodLog {
 public:
  /// A longer line (a progress bar's, which has no end) is given in pieces, as container runtimes
  /// keep it.
  static constexpr std::size_t k_longest_line = 16U << 10U;

  /// `pod` as the API gives it. Its lines go to `merge` under the Pod's uid.
  PodLog(ApiClient& api, LogMerge& merge, const nlohmann::json& pod, PodLogQuery query);
  ~PodLog();
  PodLog(const PodLog&) = delete;
  PodLog& operator=(const PodLog&) = delete;

  /// The Pod as it is now: its container runs, has ended, or the Pod is gone.
  void update(const nlohmann::json& pod);
  void pod_is_gone();

  /// Opens the stream when there is something to read, and again after it broke. To be called
  /// after each HttpClient::run_once(). Throws EngineError where the API refuses the log.
  void tend();

  /// Everything has been given.
  bool done() const { return done_; }

  /// Why some of it could not be had (a lost node); empty: all was.
  const std::string& lost() const { return lost_; }

  std::chrono::milliseconds next_tend() const;

 private:
  void open();
  void finish(std::string lost = {});
  bool on_bytes(std::string_view bytes);
  void on_line(std::string_view line, bool complete = true);
  bool takes_line(std::string_view& line);
  void on_end(const HttpResponse& response);

  ApiClient& api_;
  LogMerge& merge_;
  PodLogQuery query_;
  std::string path_;
  std::string container_;
  std::string key_;
  std::string partial_line_;
  std::size_t given_of_line_ = 0; // Bytes of an unfinished line's text that were given.
  std::size_t skip_of_line_ = 0;  // Bytes of these that the reopened stream repeats.
  bool in_line_ = false;          // The stream is within a line.
  bool drops_line_ = false;       // Which was given before.
  HttpClient::StreamId stream_ = 0;
  Time last_time_ = 0;      // The youngest given line's; a reopened stream starts with its second.
  int given_in_second_ = 0; // Whole lines of that second that were given.
  int skip_ = 0;            // Lines of these that the reopened stream repeats.
  bool counts_ = false;     // The line has that second.
  bool streaming_ = false;
  bool started_ = false;        // The container runs or has run.
  bool ended_ = false;          // The stream has ended.
  bool read_after_end_ = false; // The open stream was opened when it had ended: it is complete.
  bool done_ = false;
  std::string instance_;
  std::string refused_;
  std::string lost_;
  std::string unavailable_; // The kubelet's message in place of a log.
  int failures_ = 0;        // Consecutive ones.
  std::optional<LogMerge::Clock::time_point> give_up_at_; // The Pod is gone: its stream may hang.
  LogMerge::Clock::time_point retry_at_;
};

} // namespace dtrain::kubernetes
