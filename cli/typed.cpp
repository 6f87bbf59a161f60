#include "cli/typed.h"

#include "backends/engine.h"
#include "submit/errors.h"
#include "submit/fields/job_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace dtrain {
namespace {

/// Access flags that other engines have alone.
std::vector<std::string> others_access(const Engine& engine) {
  std::vector<std::string> flags;
  for (const AccessFlag& flag : access_flags()) {
    if (std::none_of(engine.access.begin(), engine.access.end(),
                     [&](const AccessFlag& own) { return own.name == flag.name; })) {
      flags.push_back(fmt::format("--{}", flag.name));
    }
  }
  return flags;
}

/// The engine's own help for a field, in place of the general one.
void reword(Option& option, const Engine& engine, const FieldNotes& notes) {
  const auto own = std::find_if(engine.own.begin(), engine.own.end(),
                                [&](const JobField& each) { return each.key == option.field; });
  if (own != engine.own.end()) {
    option.metavar = own->metavar;
    option.help = own->help;
    option.help.front() =
        static_cast<char>(std::toupper(static_cast<unsigned char>(option.help.front())));
    option.group = engine.group();
  } else if (const auto note = notes.find(option.field); note != notes.end()) {
    option.help.resize(option.help.size() - note->second.size());
  }
  for (const FieldNote& note : engine.notes) {
    option.help += note.key == option.field ? fmt::format("; {}", note.text) : "";
  }
}

} // namespace

Typed read_typed(const std::vector<std::string>& args) {
  Typed typed;
  const auto options = target_options(typed.target);
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (!args[i].starts_with('-')) {
      if (typed.job.empty()) {
        typed.job = args[i];
      }
      continue;
    }
    for (const auto& option : options) {
      auto& value = *std::get<std::string*>(option.target);
      for (const auto& flag : option.flag_list()) {
        if (args[i] == flag && i + 1 < args.size()) {
          value = args[++i];
        } else if (flag.starts_with("--") && args[i].starts_with(flag + "=")) {
          value = args[i].substr(flag.size() + 1);
        }
      }
    }
  }
  for (const auto& option : options) {
    auto& value = *std::get<std::string*>(option.target);
    const char* said = option.env.empty() ? nullptr : std::getenv(option.env.c_str());
    value = value.empty() && said != nullptr ? said : value;
  }
  return typed;
}

const Engine* named_engine(const Context& context, const std::vector<std::string>& args) {
  const TargetOptions target = read_typed(args).target;
  std::string name = target.backend;
  try {
    if (name.empty()) {
      name =
          profile_value(read_settings(context.config_file), target.profile, "backend").value_or("");
    }
  } catch (const Error&) { // Settings cannot be read: help and Tab are not the place to report it.
  }
  const auto found = std::find_if(engines().begin(), engines().end(),
                                  [&](const Engine* engine) { return engine->name == name; });
  return found == engines().end() ? nullptr : *found;
}

void show_only(CommandTable& table, const Engine& engine) {
  const FieldNotes notes = field_notes();
  const std::vector<std::string> others = others_access(engine);
  for (Option& option : table.options) {
    if (std::find(others.begin(), others.end(), option.long_flag()) != others.end() ||
        (!option.field.empty() && !engine.takes(option.field))) {
      option.hidden = true;
    } else if (!option.field.empty()) {
      reword(option, engine, notes);
    }
    for (const Lack& lack : engine.cannot) { // --FLAG=CHOICE
      std::erase_if(option.choices, [&](const std::string& choice) {
        return ability_name(lack.ability) == fmt::format("{}={}", option.long_flag(), choice);
      });
    }
  }
}

} // namespace dtrain
