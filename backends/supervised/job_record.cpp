#include "backends/supervised/job_record.h"

#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/options/json_number.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstring>

namespace dtrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array k_phases{Phase::queuing, Phase::pending, Phase::running, Phase::succeeded,
                              Phase::failed};
constexpr const char* k_host = "host"; ///< The owner's first key.
constexpr const char* k_instances = "instances";

std::optional<Phase> parse_phase(std::string_view name) {
  for (const auto phase : k_phases) {
    if (name == phase_name(phase)) {
      return phase;
    }
  }
  return std::nullopt;
}

/// JSON holds UTF-8 only; what a rank printed may be anything.
std::string json_text(const std::string& text) { return is_utf8(text) ? text : printable(text); }

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<int> read_optional(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<int>(whole_number<int>(json));
}

Time read_time(const Json& json) {
  const auto time = parse_time_text(json.get<std::string>());
  if (!time) {
    throw std::invalid_argument("time");
  }
  return *time;
}

/// Fills the head key by key and stops the parser where the head ends.
class HeadReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeadReader(bool with_owner) : with_owner_(with_owner) {}

  JobRecordHead head;
  bool ok = true;

  bool key(std::string& name) override {
    key_ = name;
    const bool left_out = key_ == k_host && !with_owner_ && is_final(head.summary.phase);
    return key_ != k_instances && !left_out;
  }
  bool string(std::string& value) override {
    auto& job = head.summary;
    if (key_ == "name") {
      job.name = value;
    } else if (key_ == "namespace") {
      job.namespace_name = value;
    } else if (key_ == "trainer") {
      job.trainer = value;
    } else if (key_ == "priority") {
      job.priority = value;
    } else if (key_ == "node") {
      job.node = value;
    } else if (key_ == k_host) {
      head.owner.host = value;
    } else if (key_ == "boot") {
      head.owner.boot = value;
    } else if (key_ == "phase") {
      const auto phase = parse_phase(value);
      ok = ok && phase;
      job.phase = phase.value_or(Phase::failed);
    } else if (key_ == "created") {
      job.created = time(value);
    } else if (key_ == "started") {
      job.started = time(value);
    } else if (key_ == "ended") {
      job.ended = time(value);
    } else if (key_ == "expires") {
      job.expires = time(value);
    } else if (key_ == "labels") {
      job.labels.push_back(value);
    }
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    const auto small = static_cast<int>(value);
    if (key_ == "gpus_requested") {
      head.summary.gpus_requested = small;
    } else if (key_ == "gpus_allocated") {
      head.summary.gpus_allocated = small;
    } else if (key_ == "guard_pid") {
      head.owner.guard.pid = small;
    } else if (key_ == "guard_start_time") {
      head.owner.guard.start_time = value;
    } else if (key_ == "supervisor_pid") {
      head.owner.supervisor.pid = small;
    } else if (key_ == "supervisor_start_time") {
      head.owner.supervisor.start_time = value;
    } else if (key_ == "grace_period_ms") {
      head.owner.grace_period_ms = small;
    }
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    ok = false;
    return false;
  }

 private:
  Time time(const std::string& text) {
    const auto value = parse_time_text(text);
    ok = ok && value;
    return value.value_or(0);
  }

  std::string key_;
  bool with_owner_;
};

Json instance_json(const InstanceStatus& instance) {
  return {{"name", instance.name},
          {"phase", phase_name(instance.phase)},
          {"started", time_text(instance.started)},
          {"ended", time_text(instance.ended)},
          {"is_chief", instance.is_chief},
          {"gpus", instance.gpus},
          {"node", instance.node},
          {"pid", instance.pid},
          {"exit_code", optional_json(instance.exit_code)},
          {"signal", optional_json(instance.signal)}};
}

InstanceStatus read_instance(const Json& json) {
  InstanceStatus instance;
  instance.name = json.at("name").get<std::string>();
  instance.phase = parse_phase(json.at("phase").get<std::string>()).value();
  instance.started = read_time(json.at("started"));
  instance.ended = read_time(json.at("ended"));
  instance.is_chief = json.at("is_chief").get<bool>();
  instance.gpus = whole_number<int>(json.at("gpus"));
  instance.node = json.at("node").get<std::string>();
  instance.pid = whole_number<std::int64_t>(json.at("pid"));
  instance.exit_code = read_optional(json.at("exit_code"));
  instance.signal = read_optional(json.at("signal"));
  return instance;
}

Json cause_json(const FailureCause& cause) {
  Json last = Json::array();
  for (const auto& line : cause.last_stderr) {
    last.push_back(json_text(line));
  }
  return {{"instance", cause.instance},
          {"rank", cause.rank},
          {"node", cause.node},
          {"exit_code", optional_json(cause.exit_code)},
          {"signal", optional_json(cause.signal)},
          {"message", json_text(cause.message)},
          {"last_stderr", std::move(last)}};
}

FailureCause read_cause(const Json& json) {
  FailureCause cause;
  cause.instance = json.at("instance").get<std::string>();
  cause.rank = whole_number<int>(json.at("rank"));
  cause.node = json.at("node").get<std::string>();
  cause.exit_code = read_optional(json.at("exit_code"));
  cause.signal = read_optional(json.at("signal"));
  cause.message = json.at("message").get<std::string>();
  cause.last_stderr = json.at("last_stderr").get<std::vector<std::string>>();
  return cause;
}

} // namespace

FailureCause job_failure(std::string node, std::string message) {
  FailureCause cause;
  cause.node = std::move(node);
  cause.message = std::move(message);
  return cause;
}

std::string ending_text(const std::optional<int>& exit_code, const std::optional<int>& signal) {
  if (signal) {
    const char* name = sigabbrev_np(*signal);
    return name != nullptr ? fmt::format("signal {} (SIG{})", *signal, name)
                           : fmt::format("signal {}", *signal);
  }
  return fmt::format("exit code {}", exit_code.value_or(0));
}

std::string write_job_record(const JobRecord& record) {
  const auto& job = record.status;
  const auto& owner = record.owner;
  Json json = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"trainer", job.trainer},
               {"priority", json_text(job.priority)},
               {"phase", phase_name(job.phase)},
               {"created", time_text(job.created)},
               {"started", time_text(job.started)},
               {"ended", time_text(job.ended)},
               {"expires", time_text(job.expires)},
               {"labels", job.labels},
               {"gpus_requested", job.gpus_requested},
               {"gpus_allocated", job.gpus_allocated},
               {"node", job.node},
               {k_host, owner.host},
               {"boot", owner.boot},
               {"guard_pid", owner.guard.pid},
               {"guard_start_time", owner.guard.start_time},
               {"supervisor_pid", owner.supervisor.pid},
               {"supervisor_start_time", owner.supervisor.start_time},
               {"grace_period_ms", owner.grace_period_ms}};
  auto& instances = json[k_instances] = Json::array();
  for (const auto& instance : job.instances) {
    instances.push_back(instance_json(instance));
  }
  json["uid"] = job.uid;
  json["restarts"] = job.restarts;
  json["tensorboard"] = job.tensorboard;
  json["reason"] = json_text(job.reason);
  json["cause"] = job.cause ? cause_json(*job.cause) : Json(nullptr);
  return json.dump(1) + '\n';
}

namespace {

std::optional<JobRecordHead> read_head(std::string_view text, bool with_owner) {
  HeadReader reader(with_owner);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &reader);
  static_cast<void>(whole); // False where the reader stopped, as it should.
  if (!reader.ok || reader.head.summary.name.empty()) {
    return std::nullopt;
  }
  return std::move(reader.head);
}

} // namespace

std::optional<JobRecordHead> read_job_record_head(std::string_view text) {
  return read_head(text, false);
}

std::optional<JobRecord> read_job_record(std::string_view text) {
  auto head = read_head(text, true);
  if (!head) {
    return std::nullopt;
  }
  JobRecord record;
  static_cast<JobSummary&>(record.status) = std::move(head->summary);
  record.owner = std::move(head->owner);
  try {
    const auto json = Json::parse(text);
    for (const auto& instance : json.at(k_instances)) {
      record.status.instances.push_back(read_instance(instance));
    }
    record.status.uid = json.at("uid").get<std::string>();
    record.status.restarts = whole_number<int>(json.at("restarts"));
    record.status.tensorboard = json.at("tensorboard").get<std::string>();
    record.status.reason = json.at("reason").get<std::string>();
    if (const auto& cause = json.at("cause"); !cause.is_null()) {
      record.status.cause = read_cause(cause);
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return record;
}

} // namespace dtrain
