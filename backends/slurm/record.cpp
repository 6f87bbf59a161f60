#include "backends/slurm/record.h"

#include "backends/slurm/script.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace dtrain::slurm {
namespace {

using nlohmann::json;

constexpr int k_signal_code = 128; ///< sh adds it to the number of the signal that ended a program.
constexpr int k_last_signal = 64;

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const auto word = line.substr(0, line.find(' '));
    words.push_back(word);
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return words;
}

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::optional<JobRecord> read_job_line(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  try {
    JobRecord record;
    JobStatus& status = record.status;
    record.id = object.at("id").get<std::string>();
    record.max_restarts = object.at("maxRestarts").get<int>();
    record.may_requeue = object.at("requeue").get<bool>();
    status.uid = record.id;
    status.name = object.at("name").get<std::string>();
    status.namespace_name = object.at("namespace").get<std::string>();
    status.trainer = object.at("trainer").get<std::string>();
    status.priority = object.at("priority").get<std::string>();
    status.created = object.at("created").get<Time>();
    status.gpus_requested = object.at("gpus").get<int>();
    status.labels = object.at("labels").get<std::vector<std::string>>();
    for (const json& each : object.at("instances")) {
      InstanceStatus& instance = status.instances.emplace_back();
      instance.name = each.at(0).get<std::string>();
      instance.gpus = each.at(1).get<int>();
      instance.is_chief = status.instances.size() == 1;
    }
    return record;
  } catch (const json::exception&) {
    return {};
  }
}

/// Takes a line of the job's own scripts into its record.
void read_line(const std::vector<std::string_view>& words, JobRecord& record) {
  if (words[0] == "run" && words.size() == 6) {
    record.run = Run();
    record.run.number = static_cast<int>(number_of(words[3]));
    record.run.began = number_of(words[4]);
    record.id = words[5];
  } else if (words[0] == "up" && words.size() == 5) {
    record.run.is_up = true;
  } else if (words[0] == "end" && words.size() == 6) {
    record.run.ended = number_of(words[4]);
    record.run.code = static_cast<int>(number_of(words[5]));
    record.failures += *record.run.code != 0 ? 1 : 0;
  } else if (words[0] == "start" && words.size() == 5) {
    RankRecord& rank = record.ranks[std::string(words[1])];
    rank.node = words[2];
    rank.pid = number_of(words[3]);
    rank.started = number_of(words[4]);
  } else if (words[0] == "exit" && words.size() == 4) {
    RankRecord& rank = record.ranks[std::string(words[1])];
    rank.ended = number_of(words[2]);
    rank.code = static_cast<int>(number_of(words[3]));
  }
}

bool is_ended_by_signal(int code) {
  return code > k_signal_code && code <= k_signal_code + k_last_signal;
}

/// The rank that failed first; those that a signal ended are asked last, as srun ends the others by
/// one.
const InstanceStatus* first_failed(const JobStatus& status) {
  const InstanceStatus* first = nullptr;
  for (const InstanceStatus& each : status.instances) {
    if (each.phase != Phase::failed) {
      continue;
    }
    const auto key = [](const InstanceStatus& i) {
      return std::pair(i.signal.has_value(), i.ended);
    };
    if (first == nullptr || key(each) < key(*first)) {
      first = &each;
    }
  }
  return first;
}

void fill_instances(const JobRecord& record, JobStatus& status) {
  for (InstanceStatus& each : status.instances) {
    const auto found = record.ranks.find(each.name);
    if (found == record.ranks.end()) {
      each.phase = is_final(status.phase) ? Phase::terminated : Phase::pending;
      continue;
    }
    const RankRecord& rank = found->second;
    each.node = rank.node;
    each.pid = rank.pid;
    each.started = rank.started;
    each.ended = rank.ended;
    each.phase = rank.code                ? (*rank.code == 0 ? Phase::succeeded : Phase::failed)
                 : is_final(status.phase) ? Phase::terminated
                                          : status.phase;
    if (rank.code && is_ended_by_signal(*rank.code)) {
      each.signal = *rank.code - k_signal_code;
    } else {
      each.exit_code = rank.code;
    }
  }
}

/// Of what no rank left word of, Slurm's accounting may.
void fill_cause(const State& state, const QueuedJob* queued, JobStatus& status) {
  FailureCause cause;
  if (const InstanceStatus* first = state.why.empty() ? first_failed(status) : nullptr) {
    cause.instance = first->name;
    cause.rank = static_cast<int>(first - status.instances.data());
    cause.node = first->node;
    cause.exit_code = first->exit_code;
    cause.signal = first->signal;
    for (InstanceStatus& each : status.instances) {
      if (each.signal && each.name != cause.instance && each.ended >= first->ended) {
        each.phase = Phase::terminated;
      }
    }
  } else if (state.why.empty() && queued != nullptr) {
    cause.exit_code = queued->exit_code;
    cause.signal = queued->signal;
  }
  if (cause.signal) {
    cause.message = fmt::format("ended by signal {}", *cause.signal);
  } else if (cause.exit_code) {
    cause.message = fmt::format("exit code {}", *cause.exit_code);
  } else {
    cause.message = state.why;
    status.reason = state.why;
  }
  status.cause = cause;
}

} // namespace

std::string write_job_line(const JobSpec& job, const std::string& id, Time now) {
  auto instances = json::array();
  int gpus = 0;
  for (const InstanceStatus& each : planned_instances(job)) {
    instances.push_back({each.name, each.gpus});
    gpus += each.gpus;
  }
  const json object = {{"id", id},
                       {"name", job.name},
                       {"namespace", job.namespace_name},
                       {"trainer", find_job_type(job.type)->trainer},
                       {"priority", job.priority},
                       {"created", now},
                       {"gpus", gpus},
                       {"labels", job.labels},
                       {"maxRestarts", job.max_restarts},
                       {"requeue", may_requeue(job)},
                       {"instances", std::move(instances)}};
  return "job " + object.dump() + "\n";
}

std::map<std::string, JobRecord> read_records(std::string_view text) {
  std::map<std::string, JobRecord> jobs;
  JobRecord* last = nullptr; ///< Whose the ranks' lines are that follow.
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with("job ")) {
      last = nullptr;
      if (auto record = read_job_line(line.substr(4))) {
        last = &jobs[record->status.namespace_name + "/" + record->status.name];
        *last = std::move(*record);
      }
      continue;
    }
    const auto words = split_words(line);
    if (words.size() < 4) {
      continue;
    }
    if (words[0] == "run" || words[0] == "up" || words[0] == "end") {
      const auto found = jobs.find(fmt::format("{}/{}", words[1], words[2]));
      last = found == jobs.end() ? nullptr : &found->second;
    }
    if (last != nullptr) {
      read_line(words, *last);
    }
  }
  return jobs;
}

namespace {

/// The ranks failed with their node, or made room: Slurm, who has it in its queue, starts it anew.
bool is_queued_anew(const JobRecord& record, const QueuedJob* queued) {
  return record.may_requeue && record.run.code.value_or(0) != 0 && queued != nullptr &&
         !is_final(state_of(queued->state).phase);
}

/// By the script, by Slurm, or by its last rank; 0: nobody says.
Time ended_at(const JobRecord& record, const QueuedJob* queued) {
  if (record.run.code) {
    return record.run.ended;
  }
  Time last = queued != nullptr ? queued->ends : 0;
  for (const auto& [name, rank] : record.ranks) {
    last = queued == nullptr ? std::max(last, rank.ended) : last;
  }
  return last;
}

} // namespace

JobStatus status_of(const JobRecord& record, const QueuedJob* queued) {
  JobStatus status = record.status;
  State state{"", Phase::failed};
  if (record.has_ended() && !is_queued_anew(record, queued)) {
    state.phase = *record.run.code == 0 ? Phase::succeeded : Phase::failed;
    if (queued != nullptr && state_of(queued->state).phase == Phase::failed) {
      state = state_of(queued->state);
    }
  } else if (queued != nullptr) {
    state = state_of(queued->state);
    status.reason = state.phase == Phase::pending ? reason_text(*queued) : std::string(state.why);
    status.starts = state.phase == Phase::pending ? queued->starts : 0;
    if (state.phase == Phase::pending && queued->reason.starts_with("JobHeld")) {
      state.phase = Phase::suspended;
    }
  } else {
    state.why = "Slurm no longer knows the job, and it left no end: it was cancelled, or a node of "
                "it failed (sacct -j may know)";
  }
  if (state.phase == Phase::running && !record.run.is_up && !record.run.code) {
    state.phase = Phase::pending;
    status.reason = "Slurm has given it nodes, and its ranks are being started";
  }
  status.phase = state.phase;
  status.restarts = std::max(record.run.number, 0);
  status.started = record.run.began;
  if (is_final(status.phase)) {
    status.ended = ended_at(record, queued);
    if (status.started == 0 && queued != nullptr && !queued->nodes.empty()) {
      status.started = queued->starts;
    }
  }
  fill_instances(record, status);
  for (const InstanceStatus& each : status.instances) {
    status.gpus_allocated += each.phase == Phase::running ? each.gpus : 0;
  }
  status.node = status.instances.empty() ? "" : status.instances[0].node;
  if (status.phase == Phase::failed) {
    fill_cause(state, queued, status);
  }
  return status;
}

} // namespace dtrain::slurm
