#include "cli/commands/complete.h"

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/settings/settings.h"
#include "cli/target.h"
#include "cli/typed.h"
#include "submit/job_roles.h"
#include "submit/options/completion.h"
#include "submit/template/render.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

/// `behind`: text that follows each name.
std::vector<Candidate> job_names(const Context& context, const Typed& typed, const char* behind) {
  const Target target = open_target(context, typed.target);
  auto all = target.backend->names({target.namespace_name});
  std::sort(all.begin(), all.end());
  std::vector<Candidate> names;
  names.reserve(all.size());
  for (const auto& name : all) {
    names.push_back({name + behind, ""});
  }
  return names;
}

std::vector<Candidate> instance_names(const Context& context, const Typed& typed) {
  const Target target = open_target(context, typed.target);
  const auto job = typed.job.substr(0, typed.job.find(':'));
  std::vector<Candidate> names;
  for (const auto& instance : target.backend->status(target.job(job)).instances) {
    names.push_back({instance.name, std::string(phase_name(instance.phase))});
  }
  return names;
}

std::vector<Candidate> template_names() {
  std::vector<Candidate> names;
  for (const auto& builtin : builtin_templates()) {
    names.push_back({std::string(builtin.name), ""});
  }
  return names;
}

std::vector<Candidate> job_type_names() {
  std::vector<Candidate> names;
  for (const auto& type : job_types()) {
    if (!type.name.empty()) {
      names.push_back({type.name, ""});
    }
  }
  return names;
}

std::vector<Candidate> engine_values(const Option& option, const EngineAccess& access) {
  std::vector<Candidate> names;
  for (const AccessFlag& flag : access_flags()) {
    if (flag.values != nullptr && option.long_flag() == fmt::format("--{}", flag.name)) {
      for (auto& value : flag.values(access)) {
        names.push_back({std::move(value), ""});
      }
    }
  }
  return names;
}

/// The first word of every command, or the words that may follow a group's.
std::vector<Candidate> command_words(const std::vector<std::string>& args) {
  const std::string group = args.empty() ? "" : args[0] + " ";
  std::vector<Candidate> words;
  for (const auto& entry : commands()) {
    if (entry.group.empty() || !entry.name.starts_with(group)) {
      continue;
    }
    const std::string_view rest = entry.name.substr(group.size());
    const bool whole = rest.find(' ') == std::string_view::npos;
    Candidate word = {std::string(rest.substr(0, rest.find(' '))),
                      whole ? entry.make().table.summary : ""};
    for (const auto& known : command_groups()) {
      word.description =
          !whole && known.name == word.word ? std::string(known.summary) : word.description;
    }
    if (words.empty() || words.back().word != word.word) {
      words.push_back(std::move(word));
    }
  }
  return words;
}

std::vector<Candidate> status_names() {
  std::vector<Candidate> names;
  for (const auto phase : {Phase::queuing, Phase::suspended, Phase::pending, Phase::running,
                           Phase::succeeded, Phase::failed}) {
    names.push_back({lower_case(phase_name(phase)), ""});
  }
  return names;
}

/// `behind`: text that follows each name.
std::vector<Candidate> location_names(const Locations& all, const char* behind) {
  std::vector<Candidate> names;
  for (const auto& [name, location] : all) {
    names.push_back({name + behind, ""});
  }
  return names;
}

std::vector<Candidate> setting_values(const std::vector<std::string>& args) {
  const Typed typed = read_typed(args);
  std::vector<Candidate> values;
  if (typed.job == "backend") { // The first word that is no flag.
    for (auto& name : backend_names()) {
      values.push_back({std::move(name), ""});
    }
  }
  return values;
}

std::vector<Candidate> profile_names(const Context& context) {
  std::vector<Candidate> names;
  for (const auto& profile : read_settings(context.config_file).profiles) {
    names.push_back({profile.first, ""});
  }
  return names;
}

std::vector<Candidate> names_of(const Context& context, const Option& option,
                                const std::vector<std::string>& args) {
  switch (option.complete) {
  case Complete::job:
    return job_names(context, read_typed(args),
                     option.flags.find(':') == std::string::npos ? "" : ":");
  case Complete::instance:
    return instance_names(context, read_typed(args));
  case Complete::template_name:
    return template_names();
  case Complete::profile:
    return profile_names(context);
  case Complete::engine:
    return engine_values(option, read_typed(args).target.access);
  case Complete::job_type:
    return job_type_names();
  case Complete::command_name:
    return command_words(args);
  case Complete::job_status:
    return status_names();
  case Complete::data_name:
  case Complete::data_mount:
    return location_names(
        read_settings(context.config_file).data_of(read_typed(args).target.profile),
        option.complete == Complete::data_mount ? ":" : "");
  case Complete::code_name:
    return location_names(read_settings(context.config_file).code, "");
  case Complete::setting_value:
    return setting_values(args);
  default:
    return {};
  }
}

/// True where the words in front of the last begin with the command's.
bool is_command(const std::vector<std::string>& words, std::string_view name) {
  return (words.size() > 1 && name == words[0]) ||
         (words.size() > 2 && name == fmt::format("{} {}", words[0], words[1]));
}

/// Keeps only what the named backend takes, and only backends that can do it.
void narrow(const Context& context, const Invocation& invocation,
            const std::vector<std::string>& words, CommandTable& table) {
  if (const Engine* engine = named_engine(context, {words.begin(), words.end() - 1})) {
    show_only(table, *engine);
  }
  for (Option& option : table.options) {
    if (invocation.needs && option.long_flag() == "--backend") {
      std::erase_if(option.choices, [&](const std::string& name) {
        return find_engine(name).lack_of(*invocation.needs) != nullptr;
      });
    }
  }
}

} // namespace

int run_complete(Context& context, const std::vector<std::string>& args) {
  try {
    if (args.size() < 2) {
      return k_exit_error;
    }
    std::vector<std::string> words(args.begin() + 1, args.end());
    if (args[0] == "bash") {
      std::transform(words.begin(), words.end(), words.begin(), unquote_typed);
    }
    // Only one command's flags are asked for, but which one is for complete() to say.
    std::vector<Invocation> alive;
    std::vector<CommandTable> tables;
    for (const auto& entry : commands()) {
      if (entry.group.empty()) {
        continue;
      }
      alive.push_back(entry.make());
      tables.push_back(alive.back().table);
      if (is_command(words, entry.name)) {
        narrow(context, alive.back(), words, tables.back());
      }
    }
    std::vector<Candidate> groups;
    for (const auto& group : command_groups()) {
      groups.push_back({std::string(group.name), std::string(group.summary)});
    }
    const auto completions = complete(
        tables, words,
        [&](const Option& option, const std::vector<std::string>& typed) {
          return names_of(context, option, typed);
        },
        groups);
    context.out.write(completion_text(completions));
    context.out.flush();
    return k_exit_ok;
  } catch (const std::exception&) {
    return k_exit_error;
  }
}

} // namespace dtrain
