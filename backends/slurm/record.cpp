#include "backends/slurm/record.h"

#include "backends/engine.h"
#include "backends/slurm/identity.h"
#include "backends/slurm/script.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <limits>

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

/// "worker-0" of "7/worker-0".
std::string_view rank_name(std::string_view instance) {
  return instance.substr(task_prefix(instance).size());
}

/// 7 of "7/worker-0"; -1: it is no array's.
int task_of(std::string_view name) {
  const auto prefix = task_prefix(name);
  return prefix.empty() ? -1 : static_cast<int>(number_of(prefix));
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
    record.submitted = object.value("submitted", Time(0)) * k_second;
    record.cluster = object.value("cluster", "");
    for (const int index : read_indexes(object.value("array", ""))) {
      JobRecord& task = record.tasks[index];
      task.submitted = record.submitted;
      task.cluster = record.cluster;
      task.max_restarts = record.max_restarts;
      task.may_requeue = record.may_requeue;
      task.status = status;
    }
    record.set_id(record.id);
    return record;
  } catch (const json::exception&) {
    return {};
  }
}

/// Takes a line of the job's own scripts into its record.
void read_line(const std::vector<std::string_view>& words, JobRecord& record) {
  if (words[0] == "run" && words.size() >= 6) {
    record.run = Run();
    record.run.number = static_cast<int>(number_of(words[3]));
    record.run.began = number_of(words[4]);
    record.raw_id = words[5];
    record.run.node = words.size() > 6 ? words[6] : "";
    if (record.id.find('_') == std::string::npos) {
      record.id = record.status.uid =
          words[5]; // Of a script that was given to sbatch anew, by hand.
    }
  } else if (words[0] == "up" && words.size() >= 5) {
    record.run.is_up = true;
    record.run.node = words.size() > 5 ? std::string(words[5]) : record.run.node;
  } else if (words[0] == "first" && words.size() == 7) {
    record.run.first_failed = words[5];
  } else if (words[0] == "end" && words.size() == 6) {
    record.run.ended = number_of(words[4]);
    record.run.code = static_cast<int>(number_of(words[5]));
    record.failures += *record.run.code != 0 ? 1 : 0;
  } else if (words[0] == "start" && words.size() == 5) {
    RankRecord& rank = record.ranks[std::string(rank_name(words[1]))];
    rank.node = words[2];
    rank.pid = number_of(words[3]);
    rank.started = number_of(words[4]);
  } else if (words[0] == "exit" && words.size() >= 4) {
    RankRecord& rank = record.ranks[std::string(rank_name(words[1]))];
    rank.ended = number_of(words[2]);
    rank.code = static_cast<int>(number_of(words[3]));
    rank.was_told = words.size() > 4 && words[4] == "told";
  }
}

bool is_ended_by_signal(int code) {
  return code > k_signal_code && code <= k_signal_code + k_last_signal;
}

/// The rank that failed first: as the script on the first node saw it; else of those that failed by
/// themselves, where those that a signal ended are asked last, as srun ends the others by one.
const InstanceStatus* first_failed(const JobRecord& record, const JobStatus& status) {
  const InstanceStatus* first = nullptr;
  for (const InstanceStatus& each : status.instances) {
    if (each.phase != Phase::failed) {
      continue;
    }
    if (each.name == record.run.first_failed) {
      return &each;
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
    each.phase = rank.code                ? (*rank.code == 0 ? Phase::succeeded
                                             : rank.was_told ? Phase::terminated
                                                             : Phase::failed)
                 : is_final(status.phase) ? Phase::terminated
                                          : status.phase;
    if (rank.code && is_ended_by_signal(*rank.code)) {
      each.signal = *rank.code - k_signal_code;
    } else {
      each.exit_code = rank.code;
    }
  }
}

/// "worker-1 (rank 1) on node2 ended with exit code 7"
std::string failure_text(const FailureCause& cause) {
  const char* const name = cause.signal ? sigabbrev_np(*cause.signal) : nullptr;
  return fmt::format("{}{}{} ended with {}{}", cause.instance,
                     cause.rank < 0 ? "" : fmt::format(" (rank {})", cause.rank),
                     cause.node.empty() ? "" : " on " + cause.node,
                     cause.signal ? fmt::format("signal {}", *cause.signal)
                                  : fmt::format("exit code {}", cause.exit_code.value_or(0)),
                     name == nullptr ? "" : fmt::format(" (SIG{})", name));
}

/// Of what no rank left word of, Slurm's accounting may.
void fill_cause(const JobRecord& record, const State& state, const QueuedJob* queued,
                JobStatus& status) {
  FailureCause cause;
  if (const InstanceStatus* first = state.why.empty() ? first_failed(record, status) : nullptr) {
    const bool ranked =
        is_ranked_role(std::string_view(first->name).substr(0, first->name.rfind('-')));
    cause.instance = first->name;
    cause.rank = ranked ? static_cast<int>(first - status.instances.data()) : -1;
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
  if (!cause.signal && !cause.exit_code) {
    status.reason =
        state.why.empty() && queued != nullptr ? reason_text(*queued) : std::string(state.why);
  }
  if (!cause.instance.empty()) {
    status.reason = cause.message = failure_text(cause);
  } else {
    cause.message = cause.signal      ? fmt::format("ended by signal {}", *cause.signal)
                    : cause.exit_code ? fmt::format("exit code {}", *cause.exit_code)
                                      : std::string(state.why);
  }
  status.cause = cause;
}

} // namespace

std::string write_job_line(const JobSpec& job, const std::string& id, Time now,
                           const std::string& cluster, Time submitted) {
  auto instances = json::array();
  int gpus = 0;
  for (const InstanceStatus& each : planned_instances(job)) {
    instances.push_back({each.name, each.gpus});
    gpus += each.gpus;
  }
  json object = {{"id", id},
                 {"name", job.name},
                 {"namespace", job.namespace_name},
                 {"trainer", find_job_type(job.type)->trainer},
                 {"priority", job.priority},
                 {"created", now},
                 {"cluster", cluster},
                 {"submitted", submitted / k_second},
                 {"gpus", gpus},
                 {"labels", job.labels},
                 {"maxRestarts", job.max_restarts},
                 {"requeue", may_requeue(job)},
                 {"instances", std::move(instances)}};
  if (const std::string array = engine_value(job, "array"); !array.empty()) {
    object["array"] = array;
    object["tasks"] = read_indexes(array).size();
  }
  const std::string line = "job " + object.dump() + "\n";
  const auto [before, after] = around_id(line);
  return fmt::format("{}{:{}}{}", before, json(id).dump(), k_id_width, after);
}

std::pair<std::string, std::string> around_id(const std::string& line) {
  constexpr std::string_view k_id = R"("id":)";
  const auto at = line.find(k_id) + k_id.size();
  return {line.substr(0, at), line.substr(line.find_first_of(",}", at))};
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
    const bool is_of_rank = words[0] == "start" || words[0] == "exit";
    const auto name = words[is_of_rank ? 1 : 2];
    if (!is_of_rank) {
      const auto found = jobs.find(fmt::format("{}/{}", words[1], rank_name(name)));
      last = found == jobs.end() ? nullptr : &found->second;
    }
    JobRecord* record = last;
    if (const int index = task_of(name); record != nullptr && index >= 0) {
      const auto task = record->tasks.find(index);
      record = task == record->tasks.end() ? nullptr : &task->second;
    }
    if (record != nullptr) {
      read_line(words, *record);
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

/// The batch script did not begin, or is said to have ended well and is not known to have begun:
/// its node may lack the job's folder. From Slurm 23.02 on it makes one there; before, it says that
/// as a signal of its own, or as the reason that it has for any signal's end.
bool left_no_word(const JobRecord& record, const QueuedJob& queued) {
  constexpr int k_no_start = 53;
  return record.run.number < 0 &&
         (queued.state == "COMPLETED" ||
          (queued.state == "FAILED" &&
           (queued.signal == k_no_start || queued.reason == "JobLaunchFailure" ||
            queued.reason.starts_with("RaisedSignal"))));
}

/// By the script, by Slurm, or by its last rank; 0: nobody says.
Time ended_at(const JobRecord& record, const QueuedJob* queued) {
  if (record.run.code) {
    return record.run.ended;
  }
  if (queued != nullptr && queued->ends != 0) {
    return queued->ends;
  }
  Time last = 0;
  for (const auto& [name, rank] : record.ranks) {
    last = std::max(last, rank.ended);
  }
  return last;
}

} // namespace

std::string_view task_prefix(std::string_view instance) {
  const auto slash = instance.find('/');
  return slash == std::string_view::npos ? "" : instance.substr(0, slash + 1);
}

void JobRecord::set_id(const std::string& number) {
  id = number;
  status.uid = number;
  for (auto& [index, task] : tasks) {
    task.id = task.status.uid = fmt::format("{}_{}", number, index);
  }
}

std::vector<std::string> JobRecord::instance_names() const {
  std::vector<std::string> names;
  if (tasks.empty()) {
    for (const InstanceStatus& each : status.instances) {
      names.push_back(each.name);
    }
  }
  for (const auto& [index, task] : tasks) {
    for (const InstanceStatus& each : task.status.instances) {
      names.push_back(fmt::format("{}/{}", index, each.name));
    }
  }
  return names;
}

const JobRecord& JobRecord::part_of(std::string_view instance) const {
  const auto task = tasks.find(task_of(instance));
  return task == tasks.end() ? *this : task->second;
}

std::string JobRecord::files_of(std::string_view instance) const {
  return fmt::format("{}{}/{}", task_prefix(instance), std::max(part_of(instance).run.number, 0),
                     rank_name(instance));
}

JobStatus status_of(const JobRecord& record, const QueuedJob* queued) {
  JobStatus status = record.status;
  State state{"", Phase::failed};
  std::string why; ///< Of `state`, where no table has it.
  if (record.has_ended() && !is_queued_anew(record, queued)) {
    state.phase = *record.run.code == 0 ? Phase::succeeded : Phase::failed;
    if (queued != nullptr && state_of(queued->state).phase == Phase::failed) {
      state = state_of(queued->state);
    }
  } else if (queued != nullptr) {
    state = state_of(queued->state);
    status.reason = state.phase == Phase::pending ? reason_text(*queued) : std::string(state.why);
    if (state.phase == Phase::pending && status.reason.empty()) {
      status.reason = state.why.empty() ? "Slurm has not looked at it yet" : state.why;
    }
    status.starts = state.phase == Phase::pending ? queued->starts : 0;
    if (state.phase == Phase::pending && is_held(*queued)) {
      state.phase = Phase::suspended;
    } else if (left_no_word(record, *queued)) {
      why = fmt::format("its script left no word{}{}{}: do the nodes share dtrain's job folder? "
                        "dtrain check says where it is",
                        queued->nodes.empty() ? "" : " on ", printable(queued->nodes),
                        queued->reason.empty() ? "" : " (" + printable(queued->reason) + ")");
      status.reason = why;
      state.why = why;
    }
  } else if (record.is_elsewhere) {
    state.phase = record.run.is_up ? Phase::running : Phase::pending;
    status.reason = fmt::format("is on the cluster {}, which is not asked from here",
                                printable(record.cluster));
  } else if (record.id.empty() && record.run.number < 0) {
    constexpr Time k_longest_submission = 600 * k_second;
    const bool is_new = time_now() - status.created < k_longest_submission;
    state.phase = is_new ? Phase::pending : Phase::failed;
    state.why =
        is_new ? "is being submitted: Slurm does not have it yet"
               : "its submission was cut off before Slurm had it: delete it, and submit it again";
    status.reason = state.why;
  } else {
    state.why = record.run.number < 0
                    ? "Slurm no longer knows the job, and it never began: it was cancelled"
                    : "Slurm no longer knows the job, and it left no end: it was cancelled, or a "
                      "node of it failed (sacct -j may know)";
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
  status.node = !status.instances.empty() && !status.instances[0].node.empty()
                    ? status.instances[0].node
                    : record.run.node;
  if (status.phase == Phase::failed) {
    fill_cause(record, state, queued, status);
  }
  return status;
}

namespace {

/// "of its tasks 2 run, 3 succeeded; the first that waits: waits for nodes …"
std::string counts_text(const std::map<Phase, int>& counts, const std::string& waits) {
  std::string text;
  for (const auto& [phase, words] :
       {std::pair(Phase::running, "run"), std::pair(Phase::pending, "wait"),
        std::pair(Phase::suspended, "are held"), std::pair(Phase::succeeded, "succeeded"),
        std::pair(Phase::failed, "failed")}) {
    if (const auto found = counts.find(phase); found != counts.end()) {
      text += fmt::format("{}{} {}", text.empty() ? "of its tasks " : ", ", found->second, words);
    }
  }
  return text + (waits.empty() ? "" : "; the first that waits: " + waits);
}

Phase phase_of_all(const std::map<Phase, int>& counts) {
  for (const Phase phase :
       {Phase::running, Phase::pending, Phase::suspended, Phase::failed, Phase::succeeded}) {
    if (counts.contains(phase)) {
      return phase;
    }
  }
  return Phase::pending;
}

} // namespace

JobStatus status_of(const JobRecord& record, const Queue& queue) {
  const auto find = [&](const JobRecord& part) {
    const QueuedJob* const found =
        part.is_elsewhere || part.id.empty() ? nullptr : queue.find(part.id);
    return found != nullptr && is_ours(part, *found) ? found : nullptr;
  };
  if (record.tasks.empty()) {
    return status_of(record, find(record));
  }
  JobStatus all = record.status;
  all.instances.clear();
  all.gpus_requested *= static_cast<int>(record.tasks.size());
  std::map<Phase, int> counts;
  std::string waits;
  Time first_failure = std::numeric_limits<Time>::max();
  for (const auto& [index, task] : record.tasks) {
    JobStatus one = status_of(task, find(task));
    ++counts[one.phase];
    all.gpus_allocated += one.gpus_allocated;
    all.restarts += one.restarts;
    if (one.started != 0 && (all.started == 0 || one.started < all.started)) {
      all.started = one.started;
    }
    all.ended = std::max(all.ended, one.ended);
    if (one.phase == Phase::pending && waits.empty()) {
      waits = one.reason;
      all.starts = one.starts;
    }
    for (InstanceStatus& instance : one.instances) {
      instance.name = fmt::format("{}/{}", index, instance.name);
      instance.is_chief = all.instances.empty();
      all.instances.push_back(std::move(instance));
    }
    if (one.cause && one.ended < first_failure) {
      first_failure = one.ended;
      all.cause = std::move(one.cause);
      if (all.cause->instance.empty()) {
        all.cause->message = fmt::format("task {}: {}", index, all.cause->message);
      } else {
        all.cause->instance = fmt::format("{}/{}", index, all.cause->instance);
        all.cause->message = fmt::format("{}/{}", index, all.cause->message);
      }
    }
  }
  all.phase = phase_of_all(counts);
  all.ended = is_final(all.phase) ? all.ended : 0;
  all.node = all.instances.empty() ? "" : all.instances[0].node;
  all.reason = counts_text(counts, waits);
  if (all.phase != Phase::failed) {
    all.cause.reset();
  }
  return all;
}

} // namespace dtrain::slurm
