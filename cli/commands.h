// All commands of dtrain: words, option table and action. The parser, --help, the man pages and Tab
// completion are all generated from here.
//
// The file of a command defines its options, the table that fills them and a run function that
// takes both; bind() ties the three. Creating one costs microseconds, and only the command that was
// asked for is created.
#pragma once

#include "cli/context.h"
#include "submit/options/option_table.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// A command that is about to run: parse into `table`, then call `run` for the exit status.
struct Invocation {
  CommandTable table;
  std::function<int(Context&)> run;
  /// Takes the place of parse_options, for a command whose flags come in layers.
  std::function<bool(const Context&, const CommandTable&, const std::vector<std::string>&)> parse =
      {};
  std::optional<Ability> needs = {}; ///< What it needs from the backend's table.
};

template <class Options>
Invocation bind(CommandTable (*table)(Options&), int (*run)(Context&, const Options&)) {
  auto options = std::make_shared<Options>();
  Invocation bound = {table(*options),
                      [options, run](Context& context) { return run(context, *options); }};
  if constexpr (requires { options->target.needs; }) {
    bound.needs = options->target.needs;
  }
  return bound;
}

struct CommandEntry {
  std::string_view name;  ///< "submit", "template show"
  std::string_view group; ///< Heading in `dtrain help`; empty: hidden.
  Invocation (*make)();
  std::vector<std::string_view> synonyms = {}; ///< Names in other programs, for suggestions.
};

/// The first word of commands that have two: "config".
struct CommandGroup {
  std::string_view name;
  std::string_view summary;
};

const std::vector<CommandGroup>& command_groups();

/// In the order of `dtrain help`.
const std::vector<CommandEntry>& commands();

/// The command that a command line asks for: its entry, and the words after the command's own.
struct Selection {
  const CommandEntry* entry;
  std::vector<std::string> args;
};

/// Throws UsageError, with a suggestion, where the words name no command.
Selection select_command(const std::vector<std::string>& words);

// One function per file: cli/commands/submit.cpp and so on.
Invocation submit_command();
Invocation get_command();
Invocation list_command();
Invocation logs_command();
Invocation wait_command();
Invocation delete_command();
Invocation clone_command();
Invocation prune_command();
Invocation suspend_command();
Invocation resume_command();
Invocation scale_command();
Invocation scaleout_command();
Invocation scalein_command();
Invocation explain_command();
Invocation exec_command();
Invocation cp_command();
Invocation attach_command();
Invocation top_node_command();
Invocation top_job_command();
Invocation tensorboard_command();
Invocation data_add_command();
Invocation data_copy_command();
Invocation data_list_command();
Invocation data_get_command();
Invocation data_delete_command();
Invocation code_add_command();
Invocation code_list_command();
Invocation code_get_command();
Invocation code_delete_command();
Invocation check_command();
Invocation template_list_command();
Invocation template_show_command();
Invocation template_copy_command();
Invocation config_view_command();
Invocation config_list_command();
Invocation config_get_command();
Invocation config_set_command();
Invocation config_use_command();
Invocation config_delete_command();
Invocation config_path_command();
Invocation completion_command();
Invocation version_command();
Invocation help_command();

} // namespace dtrain
