#include "cli/commands.h"

#include "submit/errors.h"
#include "submit/options/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace dtrain {
namespace {

bool is_group(std::string_view word) {
  return std::any_of(command_groups().begin(), command_groups().end(),
                     [&](const CommandGroup& group) { return group.name == word; });
}

/// The command that `word` is a slip or another program's word for.
std::string suggestion(const std::string& word) {
  std::vector<std::string> known;
  for (const auto& entry : commands()) {
    if (entry.group.empty()) {
      continue;
    }
    if (std::find(entry.synonyms.begin(), entry.synonyms.end(), word) != entry.synonyms.end()) {
      return std::string(entry.name);
    }
    known.emplace_back(entry.name.substr(0, entry.name.find(' ')));
  }
  return nearest(word, known).value_or("");
}

[[noreturn]] void throw_unknown_command(const std::string& word) {
  static const std::map<std::string_view, const char*> k_arenas = {
      {"serve", "dtrain does not serve models; use Arena, or KServe"},
      {"model", "dtrain has no model registry; use Arena, or MLflow"},
      {"evaluate", "submit the evaluation as a job: dtrain submit -- COMMAND"},
      {"cron", "dtrain has no scheduled jobs; call 'dtrain submit' from cron, or from a CronJob"},
      {"logviewer", "dtrain has no log viewer in the browser; use 'dtrain logs NAME'"},
      {"whoami",
       "dtrain has no users of its own; 'dtrain config view' shows your backend and namespace"},
  };
  if (const auto found = k_arenas.find(word); found != k_arenas.end()) {
    throw UsageError(fmt::format("{}: {}", word, found->second));
  }
  static const std::set<std::string_view> k_programs = {"accelerate", "deepspeed", "horovodrun",
                                                        "mpiexec",    "mpirun",    "python",
                                                        "python3",    "torchrun"};
  if (k_programs.contains(word)) {
    throw UsageError(
        fmt::format("unknown command '{0}'; to run it as a job: dtrain submit -- {0} …", word));
  }
  const std::string near = suggestion(word);
  throw UsageError(
      near.empty()
          ? fmt::format("unknown command '{}'; 'dtrain help' lists them all", printable(word))
          : fmt::format("unknown command '{}'; did you mean '{}'?", printable(word), near));
}

/// `word` alone names a group, or its second word is wrong.
[[noreturn]] void throw_unknown_subcommand(const std::string& group,
                                           const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const auto& entry : commands()) {
    if (entry.name.starts_with(group + " ")) {
      known.emplace_back(entry.name.substr(group.size() + 1));
    }
  }
  if (words.size() < 2) {
    throw UsageError(fmt::format("{} what? One of: {}", group, fmt::join(known, ", ")));
  }
  const auto near = nearest(words[1], known);
  throw UsageError(near ? fmt::format("unknown command '{} {}'; did you mean '{}'?", group,
                                      printable(words[1]), *near)
                        : fmt::format("unknown command '{} {}'; it is one of: {}", group,
                                      printable(words[1]), fmt::join(known, ", ")));
}

} // namespace

const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> all = {
      {"config", "Profiles: the backend and namespace you work with"},
      {"data", "Data that jobs mount, by name"},
      {"code", "Code that jobs bring, by name"},
      {"top", "What nodes and jobs use"},
      {"template", "What jobs are made from"},
  };
  return all;
}

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      {"submit",
       "Jobs",
       submit_command,
       {"run", "apply", "create", "train", "sbatch", "srun", "launch"}},
      {"get", "Jobs", get_command, {"status", "describe", "show", "info"}},
      {"list", "Jobs", list_command, {"ls", "ps", "jobs", "squeue", "sacct", "queue"}},
      {"logs", "Jobs", logs_command, {"tail", "output"}},
      {"wait", "Jobs", wait_command, {"watch"}},
      {"suspend", "Jobs", suspend_command, {"pause", "hold", "stop"}},
      {"resume", "Jobs", resume_command, {"unsuspend", "continue", "release"}},
      {"scale", "Jobs", scale_command, {"resize"}},
      {"scaleout", "", scaleout_command},
      {"scalein", "", scalein_command},
      {"clone", "Jobs", clone_command, {"resubmit", "rerun", "copy"}},
      {"delete", "Jobs", delete_command, {"rm", "cancel", "kill", "scancel", "down"}},
      {"prune", "Jobs", prune_command, {"clean", "gc"}},
      {"explain", "Monitoring", explain_command, {"why", "events"}},
      {"exec", "Monitoring", exec_command},
      {"cp", "Monitoring", cp_command, {"scp", "rsync"}},
      {"attach", "Monitoring", attach_command, {"ssh", "shell", "bash"}},
      {"top node", "Monitoring", top_node_command, {"nodes", "sinfo"}},
      {"top job", "Monitoring", top_job_command},
      {"tensorboard", "Monitoring", tensorboard_command},
      {"data add", "Data and code", data_add_command},
      {"data list", "Data and code", data_list_command},
      {"data get", "Data and code", data_get_command},
      {"data delete", "Data and code", data_delete_command},
      {"data copy", "Data and code", data_copy_command, {"fetch", "download", "sync"}},
      {"code add", "Data and code", code_add_command},
      {"code list", "Data and code", code_list_command},
      {"code get", "Data and code", code_get_command},
      {"code delete", "Data and code", code_delete_command},
      {"check", "Set-up", check_command, {"doctor", "preflight"}},
      {"config view", "Set-up", config_view_command},
      {"config list", "Set-up", config_list_command},
      {"config get", "Set-up", config_get_command},
      {"config set", "Set-up", config_set_command},
      {"config use", "Set-up", config_use_command},
      {"config delete", "Set-up", config_delete_command},
      {"config path", "Set-up", config_path_command},
      {"template list", "Set-up", template_list_command},
      {"template show", "Set-up", template_show_command},
      {"template copy", "Set-up", template_copy_command},
      {"completion", "More", completion_command},
      {"version", "More", version_command},
      {"help", "More", help_command, {"man"}},
  };
  return all;
}

Selection select_command(const std::vector<std::string>& words) {
  const auto find = [](std::string_view name) -> const CommandEntry* {
    const auto found = std::find_if(commands().begin(), commands().end(),
                                    [&](const CommandEntry& entry) { return entry.name == name; });
    return found == commands().end() ? nullptr : &*found;
  };
  if (const auto* entry = find(words.at(0))) {
    return {entry, {words.begin() + 1, words.end()}};
  }
  if (words.size() > 1) {
    if (const auto* entry = find(words[0] + " " + words[1])) {
      return {entry, {words.begin() + 2, words.end()}};
    }
  }
  if (is_group(words[0])) {
    throw_unknown_subcommand(words[0], words);
  }
  throw_unknown_command(words[0]);
}

} // namespace dtrain
