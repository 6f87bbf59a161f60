#include "backends/slurm/identity.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <strings.h>

namespace dtrain::slurm {
namespace {

constexpr Time k_skew =
    300 * k_second; ///< Of two machines' clocks: munge lets them differ as much.

bool has_word(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  return at != std::string_view::npos &&
         (at + word.size() == text.size() || text[at + word.size()] == ' ');
}

/// The value of "ClusterName=…" in that file; empty: it has none, or cannot be read.
std::string cluster_in(const std::string& path) {
  std::ifstream file(path);
  constexpr std::string_view k_key = "ClusterName";
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find_first_not_of(" \t");
    const auto equals = line.find('=');
    if (begin == std::string::npos || equals == std::string::npos ||
        strncasecmp(line.c_str() + begin, k_key.data(), k_key.size()) != 0) {
      continue;
    }
    const auto value = std::min(line.find_first_not_of(" \t", equals + 1), line.size());
    return line.substr(value, line.find_first_of(" \t#\r", value) - value);
  }
  return "";
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

} // namespace

std::string comment_of(const JobRef& job) {
  return fmt::format("dtrain {}/{}", job.namespace_name, job.name);
}

bool is_ours(const JobRecord& record, const QueuedJob& job) {
  const Time since = record.submitted;
  const bool is_timed = since != 0 && job.submitted != 0;
  if (has_word(job.comment, comment_of({record.status.namespace_name, record.status.name}))) {
    return !is_timed || job.submitted >= since - k_skew; // Later, where it was queued anew.
  }
  if (job.comment.find("dtrain ") != std::string::npos) {
    return false;
  }
  return !is_timed || std::abs(job.submitted - since) <= k_skew;
}

void find_number(JobRecord& record, const Queue& queue) {
  if (!record.id.empty()) {
    return;
  }
  const QueuedJob* last = nullptr;
  for (const auto& [id, job] : queue.jobs()) {
    if (has_word(job.comment, comment_of({record.status.namespace_name, record.status.name})) &&
        is_ours(record, job) && (last == nullptr || job.submitted > last->submitted)) {
      last = &job;
    }
  }
  if (last != nullptr) {
    record.set_id(last->id.substr(0, last->id.find('_')));
  }
}

std::string cluster_here() {
  if (std::string chosen = variable("SLURM_CLUSTERS"); !chosen.empty()) {
    return chosen;
  }
  if (const std::string own = variable("SLURM_CONF"); !own.empty()) {
    return cluster_in(own);
  }
  for (const char* path : {"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf",
                           "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf"}) {
    if (std::string name = cluster_in(path); !name.empty()) {
      return name;
    }
  }
  return "";
}

void mark_elsewhere(JobRecord& record, const std::string& here) {
  record.is_elsewhere = !here.empty() && !record.cluster.empty() && record.cluster != here;
  for (auto& [index, task] : record.tasks) {
    task.is_elsewhere = record.is_elsewhere;
  }
}

} // namespace dtrain::slurm
