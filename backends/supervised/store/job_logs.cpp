#include "backends/supervised/store/job_logs.h"

#include "backends/supervised/store/job_watch.h"
#include "backends/support/logs/log_reader.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

namespace dtrain {

namespace {

/// The names asked for.
std::vector<std::string> wanted_instances(const JobStatus& status, const LogQuery& query) {
  std::vector<std::string> names;
  for (const auto& instance : status.instances) {
    if (query.instance.empty() || query.instance == instance.name) {
      names.push_back(instance.name);
    }
  }
  if (names.empty() && !query.instance.empty()) {
    const auto last = status.instances.empty() ? "none" : status.instances.back().name;
    throw NotFound(fmt::format("job {} has no instance {}: it has {} instances, up to {}",
                               status.name, printable(query.instance), status.instances.size(),
                               last));
  }
  return names;
}

/// The files of one run, opened as they appear.
class RunFiles {
 public:
  RunFiles(const JobFolder& folder, std::vector<std::string> names, int restart, std::int64_t tail)
      : folder_(&folder), names_(std::move(names)), known_(names_), restart_(restart), tail_(tail) {
  }

  /// Instances that the job has by now: it was scaled.
  void add_new(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
        known_.push_back(name);
        names_.push_back(name);
      }
    }
  }

  std::deque<LogReader>& open_all() {
    while (!names_.empty()) { // They are created in this order.
      const auto path = log_file_name(names_.front(), restart_);
      Fd file(openat(folder_->fd(), path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) {
        break;
      }
      readers_.emplace_back(std::move(file), names_.front());
      if (tail_ >= 0) {
        readers_.back().skip_to_tail(tail_);
      }
      names_.erase(names_.begin());
    }
    return readers_;
  }

 private:
  const JobFolder* folder_;
  std::vector<std::string> names_; ///< Whose file is not there yet.
  std::vector<std::string> known_;
  int restart_;
  std::int64_t tail_;
  std::deque<LogReader> readers_;
};

} // namespace

void read_job_logs(const JobViewer& viewer, const JobFolder& folder, const JobRef& job,
                   const LogQuery& query, const LogSink& sink) {
  JobWatch watch(folder, query.follow);
  auto record = viewer.record(folder, job);
  if (!record) {
    throw NotFound(fmt::format("job {} was deleted", printable(job.name)));
  }
  watch.follow(record->owner);
  raise_file_limit(); // A file an instance.
  const auto names = wanted_instances(record->status, query);
  int restart = record->status.restarts - (query.previous ? 1 : 0);
  if (restart < 0) {
    throw NotFound(
        fmt::format("job {} was not restarted, so it has no previous run", printable(job.name)));
  }
  RunFiles files(folder, names, restart, query.tail);
  bool held = false;
  if (!query.follow || query.previous) {
    merge_logs(files.open_all(), query.since, k_no_horizon, sink, held);
    return;
  }
  while (true) {
    // The record first: all lines of an instance that has ended by the record are in the files.
    const auto now = time_now();
    record = viewer.record(folder, job);
    const bool job_ended = !record || is_final(record->status.phase);
    if (record) { // Another's, where it was resumed.
      watch.follow(record->owner);
    }
    if (record && query.instance.empty()) {
      files.add_new(wanted_instances(record->status, query));
    }
    const bool run_ended = job_ended || record->status.restarts > restart;
    if (!merge_logs(files.open_all(), query.since, run_ended ? k_no_horizon : now, sink, held)) {
      return;
    }
    if (run_ended && record && record->status.restarts > restart) {
      files = RunFiles(folder, names, ++restart, -1);
    } else if (job_ended) {
      return;
    } else if (!held) {
      watch.wait();
    }
  }
}

} // namespace dtrain
