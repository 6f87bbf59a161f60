#include "backends/engine.h"

#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace dtrain {

namespace {

constexpr std::string_view k_backend = "backend"; ///< The field that chooses the engine.
constexpr std::string_view k_engine_options = "engineOptions";

std::vector<std::string_view> takers(std::string_view key) {
  std::vector<std::string_view> names;
  for (const Engine* engine : engines()) {
    if (engine->takes(key)) {
      names.push_back(engine->name);
    }
  }
  return names;
}

/// "--max-restarts"; of what has no flag its key.
std::string_view flag_of(const JobField& field) {
  const std::size_t dashes = field.flags.find("--");
  return dashes == std::string_view::npos ? field.key : field.flags.substr(dashes);
}

/// "--partition=batch" as "partition=batch".
std::string as_engine_option(std::string_view flag, const std::string& value) {
  return fmt::format("{}={}", flag.substr(2), value);
}

bool has_flag(const Engine& engine, std::string_view name) {
  return std::any_of(engine.flags.begin(), engine.flags.end(),
                     [&](const JobFlag& flag) { return flag.name == name; });
}

void check_engine_options(const JobSpec& job, const Engine& engine) {
  for (const std::string& option : job.engine_options) {
    const auto name = std::string_view(option).substr(0, option.find('='));
    if (has_flag(engine, name)) {
      continue;
    }
    std::vector<std::string_view> others;
    for (const Engine* other : engines()) {
      if (has_flag(*other, name)) {
        others.push_back(other->name);
      }
    }
    throw UsageError(fmt::format(
        "--{}: the {} backend has no such flag; drop it{}", printable(name), engine.name,
        others.empty() ? "" : fmt::format(", or use --backend={}", fmt::join(others, " or "))));
  }
}

} // namespace

EngineAccess& EngineAccess::operator=(const EngineAccess& other) {
  if (this == &other) {
    return *this;
  }
  for (auto& [name, value] : values_) {
    value = other.get(name);
  }
  for (const auto& [name, value] : other.values_) {
    (*this)[name] = value;
  }
  return *this;
}

std::string EngineAccess::get(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

std::string& EngineAccess::operator[](std::string_view name) {
  return values_.try_emplace(std::string(name)).first->second;
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
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const FieldUse& field) { return field.key == key; });
  return found == fields.end() ? FieldUse{FieldUse::Kind::refused, key, "does not support it"}
                               : *found;
}

const Engine& find_engine(std::string_view name) {
  for (const Engine* engine : engines()) {
    if (engine->name == name) {
      return *engine;
    }
  }
  throw UsageError(fmt::format("no backend {}: this dtrain has {}", printable(name),
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

std::vector<Option> engine_options(JobSpec& job) {
  std::vector<Option> options;
  for (const Engine* engine : engines()) {
    std::string group(engine->name);
    group.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(group.front())));
    for (const JobFlag& flag : engine->flags) {
      const auto same = std::find_if(options.begin(), options.end(), [&](const Option& other) {
        return other.flags.substr(2) == flag.name;
      });
      if (same != options.end()) {
        same->help += fmt::format("; {}: {}", engine->name, flag.help);
        continue;
      }
      options.push_back({.flags = fmt::format("--{}", flag.name),
                         .target = &job.engine_options,
                         .metavar = std::string(flag.metavar),
                         .help = std::string(flag.help),
                         .group = group,
                         .read = as_engine_option});
    }
  }
  return options;
}

std::vector<std::string> engine_values(const JobSpec& job, std::string_view name) {
  std::vector<std::string> values;
  for (const std::string_view option : job.engine_options) {
    if (option.starts_with(name) && option.substr(name.size()).starts_with('=')) {
      values.emplace_back(option.substr(name.size() + 1));
    }
  }
  return values;
}

std::string engine_value(const JobSpec& job, std::string_view name) {
  const auto values = engine_values(job, name);
  return values.empty() ? "" : values.back();
}

std::vector<std::string> check_fields(const JobSpec& job) {
  const Engine& engine = find_engine(job.backend);
  check_engine_options(job, engine);
  std::vector<std::string> notices;
  for (const JobField& field : job_fields()) {
    if (field.key == k_backend || field.key == k_engine_options || is_default(job, field)) {
      continue;
    }
    const FieldUse use = engine.use_of(field.key);
    if (use.kind == FieldUse::Kind::unused) {
      notices.push_back(
          fmt::format("{}: not used: the {} backend {}", flag_of(field), engine.name, use.why));
    } else if (use.kind == FieldUse::Kind::refused) {
      const auto others = takers(field.key);
      throw UsageError(fmt::format(
          "{}: the {} backend {}; drop it{}", flag_of(field), engine.name, use.why,
          others.empty() ? "" : fmt::format(", or use --backend={}", fmt::join(others, " or "))));
    }
  }
  return notices;
}

FieldNotes field_notes() {
  FieldNotes notes;
  for (const Engine* engine : engines()) {
    for (const FieldNote& note : engine->notes) {
      notes[std::string(note.key)] += fmt::format("; {}: {}", engine->name, note.text);
    }
  }
  return notes;
}

std::string engines_that_take(std::string_view key) {
  return fmt::format("{}", fmt::join(takers(key), ", "));
}

} // namespace dtrain
