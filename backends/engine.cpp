#include "backends/engine.h"

#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace dtrain {

namespace {

/// Keys of fields that each engine with a scheduler or a supervisor takes.
constexpr std::array<std::string_view, 30> k_usual_fields = {
    "type",        "name",     "namespace",  "priority",        "workers",       "gpus",
    "requireGpus", "command",  "env",        "workingDir",      "maxRestarts",   "ps",
    "psGpus",      "chief",    "evaluator",  "nprocPerNode",    "successPolicy", "runningTimeout",
    "labels",      "syncMode", "syncSource", "cleanTaskPolicy", "syncUser",      "syncTokenFile",
    "envFiles",    "secrets",  "templates",  "templateValues",  "dataDirs",      "gang"};

constexpr std::string_view k_backend = "backend"; ///< The field that chooses the engine.

bool has_key(const std::vector<JobField>& fields, std::string_view key) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const JobField& field) { return field.key == key; });
}

template <class Is>
std::vector<std::string_view> engines_where(Is is) {
  std::vector<std::string_view> names;
  for (const Engine* engine : engines()) {
    if (is(*engine)) {
      names.push_back(engine->name);
    }
  }
  return names;
}

std::vector<std::string_view> takers(std::string_view key) {
  return engines_where([&](const Engine& engine) { return engine.takes(key); });
}

} // namespace

std::string EngineAccess::get(std::string_view name) const {
  const auto* value = values_.find<std::string>(name);
  return value == nullptr ? "" : *value;
}

std::string& EngineAccess::operator[](std::string_view name) {
  return values_.at<std::string>(name);
}

std::string EngineAccess::flags() const {
  std::string flags;
  for (const AccessFlag& flag : access_flags()) {
    const std::string value = get(flag.name);
    flags += value.empty() || flag.picks_hosts
                 ? ""
                 : fmt::format(" --{}={}", flag.name, quote_sh(value));
  }
  return flags;
}

std::vector<std::string_view> with_usual_fields(std::vector<std::string_view> keys) {
  keys.insert(keys.end(), k_usual_fields.begin(), k_usual_fields.end());
  return keys;
}

std::vector<FieldUse> field_table(const std::vector<std::string_view>& taken,
                                  const std::vector<FieldExcuse>& unused,
                                  const std::vector<FieldExcuse>& refused) {
  std::vector<FieldUse> table;
  table.reserve(taken.size());
  for (const auto key : taken) {
    table.push_back({FieldUse::Kind::taken, key});
  }
  for (const auto& [kind, excuses] :
       {std::pair(FieldUse::Kind::unused, &unused), std::pair(FieldUse::Kind::refused, &refused)}) {
    for (const FieldExcuse& excuse : *excuses) {
      for (const auto key : excuse.keys) {
        table.push_back({kind, key, excuse.why});
      }
    }
  }
  return table;
}

FieldUse Engine::use_of(std::string_view key) const {
  if (key == k_backend || has_key(own, key)) {
    return {FieldUse::Kind::taken, key};
  }
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const FieldUse& field) { return field.key == key; });
  return found == fields.end() ? FieldUse{FieldUse::Kind::refused, key, "does not support it"}
                               : *found;
}

std::string_view ability_name(Ability ability) {
  constexpr std::array<std::string_view, 7> k_names{
      "--dry-run=server", "suspend", "scale", "exec", "cp", "top node", "top job"};
  return k_names.at(static_cast<std::size_t>(ability));
}

const Lack* Engine::lack_of(Ability ability) const {
  const auto found = std::find_if(cannot.begin(), cannot.end(),
                                  [&](const Lack& lack) { return lack.ability == ability; });
  return found == cannot.end() ? nullptr : &*found;
}

void Engine::require(Ability ability) const {
  if (const Lack* lack = lack_of(ability)) {
    const std::string_view asked = ability_name(ability);
    throw UsageError(fmt::format("{}the {} backend {}",
                                 asked.starts_with('-') ? fmt::format("{}: ", asked) : "", name,
                                 lack->why));
  }
}

std::string Engine::group() const {
  std::string group(name);
  group.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(group.front())));
  return group;
}

const Engine& find_engine(std::string_view name) {
  for (const Engine* engine : engines()) {
    if (engine->name == name) {
      return *engine;
    }
  }
  throw UsageError(fmt::format("no backend {}; available: {}", printable(name),
                               fmt::join(backend_names(), ", ")));
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Engine* engine : engines()) {
    names.emplace_back(engine->name);
  }
  return names;
}

std::unique_ptr<Backend> make_backend(std::string_view name, const EngineAccess& access) {
  return find_engine(name).make(access);
}

const Helper* find_helper(std::string_view command) {
  for (const Engine* engine : engines()) {
    for (const Helper& helper : engine->helpers) {
      if (helper.command == command) {
        return &helper;
      }
    }
  }
  return nullptr;
}

std::vector<EnvironmentVariable> environment_variables() {
  std::vector<EnvironmentVariable> all = variables_of_dtrain();
  for (const Engine* engine : engines()) {
    all.insert(all.end(), engine->variables.begin(), engine->variables.end());
  }
  return all;
}

std::vector<AccessFlag> access_flags() {
  std::vector<AccessFlag> all;
  for (const Engine* engine : engines()) {
    for (const AccessFlag& flag : engine->access) {
      if (std::none_of(all.begin(), all.end(),
                       [&](const AccessFlag& other) { return other.name == flag.name; })) {
        all.push_back(flag);
      }
    }
  }
  return all;
}

const std::vector<JobField>& engine_fields() {
  static std::vector<std::string> groups; // The fields point to it.
  static const std::vector<JobField> all = [] {
    std::vector<JobField> fields;
    groups.reserve(engines().size());
    for (const Engine* engine : engines()) {
      const std::string& group = groups.emplace_back(engine->group());
      for (const JobField& field : engine->own) {
        if (!has_key(fields, field.key)) {
          fields.push_back(field);
          fields.back().group = group;
        }
      }
    }
    return fields;
  }();
  return all;
}

JobField text_field(std::string_view flag, std::string_view metavar, std::string_view help) {
  return own_field(Member<std::string>{.key = flag.substr(2)}, flag, metavar, help);
}

std::string engine_value(const JobSpec& job, std::string_view key) {
  return Member<std::string>{.key = key}(job);
}

std::vector<std::string> check_fields(const JobSpec& job) {
  const Engine& engine = find_engine(job.backend);
  std::vector<std::string> notices;
  for (const JobField& field : job_fields()) {
    if (is_default(job, field)) {
      continue;
    }
    const FieldUse use = engine.use_of(field.key);
    if (use.kind == FieldUse::Kind::unused) {
      notices.push_back(
          fmt::format("{}: not used: the {} backend {}", field.long_flag(), engine.name, use.why));
    } else if (use.kind == FieldUse::Kind::refused) {
      const auto others = takers(field.key);
      throw UsageError(fmt::format(
          "{}: the {} backend {}; drop it{}", field.long_flag(), engine.name, use.why,
          others.empty() ? "" : fmt::format(", or use --backend={}", fmt::join(others, " or "))));
    }
  }
  return notices;
}

FieldNotes field_notes() {
  FieldNotes notes;
  for (auto engine = engines().begin(); engine != engines().end(); ++engine) {
    for (const FieldNote& note : (*engine)->notes) {
      notes[std::string(note.key)] += fmt::format("; {}: {}", (*engine)->name, note.text);
    }
    for (const JobField& field : (*engine)->own) {
      if (std::any_of(engines().begin(), engine,
                      [&](const Engine* before) { return has_key(before->own, field.key); })) {
        notes[std::string(field.key)] += fmt::format("; {}: {}", (*engine)->name, field.help);
      }
    }
  }
  return notes;
}

std::string engines_that_take(std::string_view key) {
  return fmt::format("{}", fmt::join(takers(key), ", "));
}

std::string engines_that_cannot(Ability ability) {
  const auto names =
      engines_where([&](const Engine& engine) { return engine.lack_of(ability) != nullptr; });
  return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace dtrain
