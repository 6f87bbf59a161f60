#include "cli/program.h"

#include "cli/commands.h"
#include "cli/commands/complete.h"
#include "cli/exit_codes.h"
#include "cli/help.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace dtrain {
namespace {

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

int run_command(Context& context, const Selection& selection) {
  context.program = fmt::format("dtrain {}", selection.entry->name);
  Invocation invocation = selection.entry->make();
  constexpr std::string_view k_help_of = "--help=";
  const auto end = std::find(selection.args.begin(), selection.args.end(), "--");
  const auto help = std::find_if(selection.args.begin(), end, [&](const std::string& arg) {
    return arg.starts_with(k_help_of);
  });
  if (help != end) {
    print_help(context, invocation.table, selection.args, help->substr(k_help_of.size()));
    return k_exit_ok;
  }
  const bool run = invocation.parse ? invocation.parse(context, invocation.table, selection.args)
                                    : parse_options(invocation.table, selection.args);
  if (!run) {
    print_help(context, invocation.table, selection.args, "");
    return k_exit_ok;
  }
  return invocation.run(context);
}

/// Moves flags that Arena and others take before the command behind it.
std::vector<std::string> with_command_first(const std::vector<std::string>& words) {
  std::vector<std::string> valued = {"--loglevel", "--arena-namespace", "--namespace",
                                     "-n",         "--backend",         "-b"};
  for (const AccessFlag& flag : access_flags()) {
    valued.push_back(fmt::format("--{}", flag.name));
    valued.emplace_back(flag.alias);
  }
  static constexpr std::array<std::string_view, 2> k_switches = {"--trace", "--pprof"};
  const auto is_in = [](const auto& flags, const std::string& word) {
    return std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) != flags.end();
  };
  auto command = words.begin();
  while (command != words.end() && (is_in(valued, *command) || is_in(k_switches, *command))) {
    const bool takes_next = is_in(valued, *command) && command->find('=') == std::string::npos;
    command += takes_next && command + 1 != words.end() ? 2 : 1;
  }
  if (command == words.begin() || command == words.end() || command->starts_with('-')) {
    return words;
  }
  const auto has_two = [&] {
    return std::any_of(commands().begin(), commands().end(), [&](const CommandEntry& entry) {
      return entry.name.starts_with(*command + " ");
    });
  };
  auto flags_at = command + (has_two() && command + 1 != words.end() ? 2 : 1);
  std::vector<std::string> ordered(command, flags_at);
  ordered.insert(ordered.end(), words.begin(), command);
  ordered.insert(ordered.end(), flags_at, words.end());
  return ordered;
}

int run_words(Context& context, const std::vector<std::string>& given) {
  const std::vector<std::string> words = with_command_first(given);
  if (words.empty() || is_help(words[0])) {
    print_overview(context.out);
    return k_exit_ok;
  }
  if (words[0] == "__complete") {
    return run_complete(context, {words.begin() + 1, words.end()});
  }
  if (words[0] == "--version" || words[0] == "-V") {
    return version_command().run(context);
  }
  if (words[0].starts_with('-')) {
    throw UsageError(fmt::format("a command comes first, then its flags: dtrain COMMAND {}",
                                 printable(words[0])));
  }
  if (words.size() == 2 && is_help(words[1])) {
    print_help(context, {words[0]});
    return k_exit_ok;
  }
  return run_command(context, select_command(words));
}

} // namespace

int run_program(Context& context, const std::vector<std::string>& words) {
  try {
    const int status = run_words(context, words);
    context.out.flush();
    return status;
  } catch (const BrokenPipe&) {
    return k_exit_pipe;
  } catch (const std::exception& error) {
    try {
      // Output printed before the error stands, unless printing was the error.
      context.complain(error.what());
    } catch (const std::exception&) {
      context.complain(error.what());
    } catch (const BrokenPipe&) {
      return k_exit_pipe;
    }
    return exit_code(error);
  }
}

} // namespace dtrain
