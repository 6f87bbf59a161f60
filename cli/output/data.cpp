#include "cli/output/data.h"

#include "cli/output/job_text.h"
#include "cli/output/time.h"
#include "submit/fields/job_fields.h"
#include "submit/options/duration.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace dtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* k_api_version = "dtrain/v1";
constexpr int k_json_indent = 4;

/// True where YAML reads `text` unquoted as this same string.
bool is_plain_yaml(std::string_view text) {
  static constexpr std::array<std::string_view, 12> k_words = {
      "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", "none"};
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./").find(c) != std::string_view::npos;
  };
  if (text.empty() || !(letter(text[0]) || text[0] == '/') ||
      !std::all_of(text.begin(), text.end(), plain)) {
    return false;
  }
  return std::find(k_words.begin(), k_words.end(), lower_case(text)) == k_words.end();
}

std::string yaml_scalar(const Json& value) {
  if (!value.is_string()) {
    return value.dump();
  }
  // Goes through JSON: it replaces what is not UTF-8, and a JSON string is a YAML string.
  const auto& text = value.get_ref<const std::string&>();
  return is_plain_yaml(text) ? text : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Block style. `indent` is that of the value's own lines; the first line is already indented.
void write_yaml(std::string& out, const Json& value, std::size_t indent) {
  constexpr std::size_t k_step = 2;
  bool first = true;
  const auto begin_line = [&] {
    if (!first) {
      out.append(indent, ' ');
    }
    first = false;
  };
  const auto is_block = [](const Json& item) { return item.is_structured() && !item.empty(); };
  if (!is_block(value)) {
    out += yaml_scalar(value) + "\n";
  } else if (value.is_array()) {
    for (const auto& item : value) {
      begin_line();
      out += "- ";
      write_yaml(out, item, indent + k_step);
    }
  } else {
    for (const auto& [key, item] : value.items()) {
      begin_line();
      out += key + ":";
      if (is_block(item)) {
        const std::size_t inner = indent + (item.is_object() ? k_step : 0);
        out += "\n" + std::string(inner, ' ');
        write_yaml(out, item, inner);
      } else {
        out += " ";
        write_yaml(out, item, indent);
      }
    }
  }
}

Json instance_json(const InstanceStatus& instance, Time now) {
  Json json = {
      {"status", instance_state(instance)},
      {"name", instance.name},
      {"age", seconds_duration(age(instance, now))},
      {"node", instance.node},
      {"chief", instance.is_chief},
      {"requestGPUs", instance.gpus},
      {"creationTimestamp", instance.started / k_second},
      {"pid", instance.pid},
  };
  if (instance.exit_code) {
    json["exitCode"] = *instance.exit_code;
  }
  if (instance.signal) {
    json["signal"] = signal_name(*instance.signal);
  }
  return json;
}

Json cause_json(const FailureCause& cause) {
  Json json = {
      {"instance", cause.instance},
      {"rank", cause.rank},
      {"node", cause.node},
      {"message", cause.message},
  };
  if (cause.exit_code) {
    json["exitCode"] = *cause.exit_code;
  }
  if (cause.signal) {
    json["signal"] = signal_name(*cause.signal);
  }
  json["lastStderr"] = cause.last_stderr;
  return json;
}

Json summary_json(const JobSummary& job, std::string_view backend, Time now) {
  return {
      {"apiVersion", k_api_version},
      {"name", job.name},
      {"namespace", job.namespace_name},
      {"backend", backend},
      {"duration", seconds_duration(age(job, now))},
      {"status", phase_name(job.phase)},
      {"trainer", job.trainer},
      {"priority", job.priority.empty() ? "N/A" : job.priority},
      {"requestGPUs", job.gpus_requested},
      {"allocatedGPUs", job.gpus_allocated},
      {"creationTimestamp", job.created / k_second},
      {"startTimestamp", job.started / k_second},
      {"endTimestamp", job.ended / k_second},
      {"node", job.node},
  };
}

Json status_json(const JobStatus& job, std::string_view backend, Time now) {
  std::string chief;
  Json instances = Json::array();
  for (const auto& instance : job.instances) {
    if (instance.is_chief) {
      chief = instance.name;
    }
    instances.push_back(instance_json(instance, now));
  }
  Json json = summary_json(job, backend, now);
  json["uuid"] = job.uid;
  json["tensorboard"] = job.tensorboard;
  json["chiefName"] = chief;
  json["restarts"] = job.restarts;
  json["reason"] = job.reason;
  if (!job.labels.empty()) {
    json["labels"] = job.labels;
  }
  json["instances"] = std::move(instances);
  if (job.cause) {
    json["cause"] = cause_json(*job.cause);
  }
  return json;
}

Json spec_json(const JobSpec& job) {
  Json json;
  for (const auto& field : job_fields()) {
    if (!is_in_job_file(job, field)) {
      continue;
    }
    std::visit([&](auto member) { json[field.key] = member(job); }, field.member);
    if (field.duration) {
      json[field.key] = format_duration(std::chrono::milliseconds(json[field.key].get<int>()));
    }
  }
  return json;
}

Json record_json(const Record& record) {
  Json json = Json::object();
  for (const auto& [key, value] : record) {
    json[key] = value;
  }
  return json;
}

std::string data_text(const Json& value, DataFormat format) {
  if (format == DataFormat::json) {
    return value.dump(k_json_indent, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  std::string text;
  write_yaml(text, value, 0);
  return text;
}

} // namespace

std::string jobs_data(const std::vector<JobSummary>& jobs, std::string_view backend, Time now,
                      DataFormat format) {
  Json json = Json::array();
  for (const auto& job : jobs) {
    json.push_back(summary_json(job, backend, now));
  }
  return data_text(json, format);
}

std::string job_data(const JobStatus& job, std::string_view backend, Time now, DataFormat format) {
  return data_text(status_json(job, backend, now), format);
}

std::string whole_jobs_data(const std::vector<WholeJob>& jobs, std::string_view backend, Time now,
                            DataFormat format) {
  Json list = Json::array();
  for (const auto& job : jobs) {
    list.push_back(status_json(job.status, backend, now));
    if (job.spec) {
      list.back()["spec"] = spec_json(*job.spec);
    }
    if (job.events) {
      list.back()["events"] = Json::array();
      for (const JobEvent& event : *job.events) {
        list.back()["events"].push_back({{"source", event.source},
                                         {"type", event.type},
                                         {"timestamp", event.time / k_second},
                                         {"message", event.message}});
      }
    }
  }
  return data_text(jobs.size() == 1 ? list[0] : list, format);
}

std::string explanation_data(const JobStatus& job, const std::string& state, const std::string& why,
                             const std::vector<std::string>& hints, DataFormat format) {
  Json json = {{"apiVersion", k_api_version},
               {"name", job.name},
               {"namespace", job.namespace_name},
               {"status", phase_name(job.phase)},
               {"state", state},
               {"why", why},
               {"hints", hints}};
  if (job.cause) {
    json["cause"] = cause_json(*job.cause);
  }
  return data_text(json, format);
}

std::string record_data(const Record& record, DataFormat format) {
  return data_text(record_json(record), format);
}

std::string records_data(const std::vector<Record>& records, DataFormat format) {
  Json list = Json::array();
  for (const auto& record : records) {
    list.push_back(record_json(record));
  }
  return data_text(list, format);
}

std::string spec_data(const JobSpec& job, DataFormat format) {
  return format == DataFormat::yaml ? write_job_yaml(job) : data_text(spec_json(job), format);
}

std::string usage_data(const std::vector<JobUsage>& jobs, DataFormat format) {
  Json list = Json::array();
  for (const auto& job : jobs) {
    for (const auto& each : job.instances) {
      list.push_back({{"job", job.name},
                      {"name", each.instance},
                      {"node", each.node},
                      {"cpus", each.cpus},
                      {"memory", each.memory},
                      {"requestGPUs", each.gpus}});
    }
  }
  return data_text(list, format);
}

std::string nodes_data(const std::vector<NodeStatus>& nodes, DataFormat format) {
  Json list = Json::array();
  for (const auto& node : nodes) {
    list.push_back({{"name", node.name},
                    {"address", node.address},
                    {"role", node.role},
                    {"status", node.status},
                    {"totalGPUs", node.gpus},
                    {"requestedGPUs", node.gpus_requested},
                    {"freeGPUs", node.gpus_free()}});
    if (node.cpus > 0) {
      list.back()["cpus"] = node.cpus;
      list.back()["cpusUsed"] = node.cpus_used;
      list.back()["memory"] = node.memory;
      list.back()["memoryUsed"] = node.memory_used;
    }
  }
  return data_text(list, format);
}

std::string check_data(const std::vector<CheckResult>& results, DataFormat format) {
  static constexpr std::array<std::string_view, 4> k_levels = {"ok", "note", "warning", "error"};
  Json json = Json::array();
  for (const auto& result : results) {
    json.push_back({{"level", k_levels.at(static_cast<std::size_t>(result.level))},
                    {"what", result.what},
                    {"found", result.found}});
  }
  return data_text(json, format);
}

std::string version_data(std::string_view version, DataFormat format) {
  return data_text({{"apiVersion", k_api_version}, {"version", version}}, format);
}

} // namespace dtrain
