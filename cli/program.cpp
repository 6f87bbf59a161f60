#include "cli/program.h"

#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/exit_codes.h"
#include "cli/help.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

int run_command(Context& context, const Selection& selection) {
  context.program = fmt::format("dtrain {}", selection.entry->name);
  Invocation invocation = selection.entry->make();
  const bool run = invocation.parse ? invocation.parse(context, selection.args)
                                    : parse_options(invocation.table, selection.args);
  if (!run) {
    context.out.write(help_text("dtrain", invocation.table, context.out.terminal().width));
    return k_exit_ok;
  }
  return invocation.run(context);
}

int run_words(Context& context, const std::vector<std::string>& words) {
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
    print_help(context.out, {words[0]});
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
      // What was printed before the error stands, unless printing was the error.
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
