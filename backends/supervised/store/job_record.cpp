#include "backends/supervised/store/job_record.h"

#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/options/json_number.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <variant>

namespace dtrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array k_phases{Phase::queuing, Phase::pending,   Phase::running,   Phase::succeeded,
                              Phase::failed,  Phase::suspended, Phase::terminated};
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

/// JSON is UTF-8 only, but a rank may print any bytes.
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

/// The few forms of JSON that a record's head has, read in one pass: `list` reads thousands.
class HeadText {
 public:
  explicit HeadText(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_space();
    const bool found = text_.starts_with(wanted);
    text_.remove_prefix(found ? 1 : 0);
    return found;
  }

  /// Valid until the next one.
  std::optional<std::string_view> string() {
    if (!take('"')) {
      return std::nullopt;
    }
    bool is_plain = true; // ASCII with nothing escaped, as most are.
    std::size_t end = 0;
    for (; end < text_.size() && text_[end] != '"'; ++end) {
      const bool is_escape = text_[end] == '\\';
      is_plain = is_plain && !is_escape && static_cast<unsigned char>(text_[end]) < 0x80;
      end += is_escape ? 1 : 0;
    }
    if (end >= text_.size()) {
      return std::nullopt;
    }
    const auto inner = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    if (is_plain) {
      return inner;
    }
    const auto whole = Json::parse(fmt::format("\"{}\"", inner), nullptr, false);
    if (!whole.is_string()) {
      return std::nullopt;
    }
    decoded_ = whole.get<std::string>();
    return decoded_;
  }

  std::optional<std::uint64_t> number() {
    skip_space();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || end == text_.data() + text_.size()) {
      return std::nullopt; // It may continue after the text's end.
    }
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }

  std::size_t left() const { return text_.size(); }

  bool is_at(char wanted) {
    skip_space();
    return text_.starts_with(wanted);
  }

 private:
  void skip_space() {
    while (!text_.empty() &&
           (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t' || text_[0] == '\r')) {
      text_.remove_prefix(1);
    }
  }

  std::string_view text_;
  std::string decoded_;
};

/// The target of a key's value.
struct Field {
  std::string_view key;
  std::variant<std::string*, Phase*, Time*, int*, std::uint64_t*, std::vector<std::string>*> value;
};

/// In the order in which they are written.
auto fields_of(JobSummary& job, JobOwner& owner) {
  return std::to_array<Field>({{"name", &job.name},
                               {"namespace", &job.namespace_name},
                               {"trainer", &job.trainer},
                               {"priority", &job.priority},
                               {"phase", &job.phase},
                               {"created", &job.created},
                               {"started", &job.started},
                               {"ended", &job.ended},
                               {"expires", &job.expires},
                               {"labels", &job.labels},
                               {"gpus_requested", &job.gpus_requested},
                               {"gpus_allocated", &job.gpus_allocated},
                               {"node", &job.node},
                               {k_host, &owner.machine.host},
                               {"machine_id", &owner.machine.id},
                               {"boot", &owner.machine.boot},
                               {"pid_namespace", &owner.machine.pid_namespace},
                               {"guard_pid", &owner.guard.pid},
                               {"guard_start_time", &owner.guard.start_time},
                               {"supervisor_pid", &owner.supervisor.pid},
                               {"supervisor_start_time", &owner.supervisor.start_time},
                               {"grace_period_ms", &owner.grace_period_ms},
                               {"cgroup", &owner.cgroup}});
}

/// False where the text has something else there. Each reads one kind of value.
struct ReadValue {
  HeadText& text;

  bool operator()(std::string* value) const {
    const auto found = text.string();
    value->assign(found.value_or(""));
    return found.has_value();
  }
  bool operator()(Phase* value) const {
    const auto phase = parse_phase(text.string().value_or(""));
    *value = phase.value_or(Phase::failed);
    return phase.has_value();
  }
  bool operator()(Time* value) const {
    const auto found = text.string();
    const auto time = found ? parse_time_text(*found) : std::nullopt;
    *value = time.value_or(0);
    return time.has_value();
  }
  bool operator()(int* value) const {
    const auto number = text.number();
    *value = static_cast<int>(number.value_or(0));
    return number.has_value();
  }
  bool operator()(std::uint64_t* value) const {
    const auto number = text.number();
    *value = number.value_or(0);
    return number.has_value();
  }
  bool operator()(std::vector<std::string>* value) const {
    if (!text.take('[')) {
      return false;
    }
    if (text.take(']')) {
      return true;
    }
    do {
      const auto entry = text.string();
      if (!entry) {
        return false;
      }
      value->emplace_back(*entry);
    } while (text.take(','));
    return text.take(']');
  }
};

/// Skips the value of an unknown key.
bool skip_value(HeadText& text) {
  std::vector<std::string> list;
  return text.is_at('"')   ? text.string().has_value()
         : text.is_at('[') ? ReadValue{text}(&list)
                           : text.number().has_value();
}

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
               {k_host, owner.machine.host},
               {"machine_id", owner.machine.id},
               {"boot", owner.machine.boot},
               {"pid_namespace", owner.machine.pid_namespace},
               {"guard_pid", owner.guard.pid},
               {"guard_start_time", owner.guard.start_time},
               {"supervisor_pid", owner.supervisor.pid},
               {"supervisor_start_time", owner.supervisor.start_time},
               {"grace_period_ms", owner.grace_period_ms},
               {"cgroup", owner.cgroup}};
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

/// Key by key, to where the head ends.
std::optional<JobRecordHead> read_head(std::string_view record, bool with_owner) {
  JobRecordHead head;
  JobOwner owner;
  const auto fields = fields_of(head.summary, owner);
  const auto* next = fields.begin();
  HeadText text(record);
  if (!text.take('{')) {
    return std::nullopt;
  }
  do {
    const auto key = text.string();
    if (!key || !text.take(':')) {
      return std::nullopt;
    }
    if (key == k_instances || (key == k_host && !with_owner && is_final(head.summary.phase))) {
      break;
    }
    const auto is_it = [&](const Field& field) { return field.key == *key; };
    const auto* found = next != fields.end() && is_it(*next)
                            ? next
                            : std::find_if(fields.begin(), fields.end(), is_it);
    if (found == fields.end() ? !skip_value(text) : !std::visit(ReadValue{text}, found->value)) {
      return std::nullopt;
    }
    next = found == fields.end() ? found : found + 1;
  } while (text.take(','));
  if (head.summary.name.empty()) {
    return std::nullopt;
  }
  if (with_owner || !is_final(head.summary.phase)) {
    head.owner = std::make_unique<JobOwner>(std::move(owner));
  }
  head.bytes = record.size() - text.left();
  return head;
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
  record.owner = std::move(*head->owner);
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
