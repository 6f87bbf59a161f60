#include "backends/batch/record.h"

#include "backends/batch/queued_job.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace dtrain::batch {
namespace {

using nlohmann::json;

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
    // Records of before September 2026 have none; they were written as the job was submitted.
    record.submitted = object.value("submitted", status.created / k_second) * k_second;
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
      record.id = record.status.uid = words[5]; // For a script that was submitted again by hand.
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
    rank.ended_by_queue = words.size() > 4 && words[4] == "told";
  }
}

} // namespace

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

} // namespace dtrain::batch
