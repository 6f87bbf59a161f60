#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct DeleteOptions {
  std::vector<std::string> names;
  bool all = false;
  bool ignore_not_found = false;
  TargetOptions target;
};

CommandTable delete_table(DeleteOptions& options) {
  CommandTable table = {
      .name = "delete",
      .summary = "End jobs and forget them",
      .description = "Ends every process of the jobs named and removes their records and logs.",
      .examples = {"dtrain delete mnist", "# In a script that may run twice",
                   "dtrain delete mnist --ignore-not-found"},
      .options = {{.flags = "NAME",
                   .target = &options.names,
                   .help = "The names of jobs",
                   .complete = Complete::job,
                   .positional = true},
                  {.flags = "--all", .target = &options.all, .help = "Every job of the namespace"},
                  {.flags = "--ignore-not-found",
                   .target = &options.ignore_not_found,
                   .help = "A job that is not there counts as deleted"}}};
  for (auto& option : target_options(options.target)) {
    table.options.push_back(std::move(option));
  }
  return table;
}

std::vector<std::string> names_to_delete(const Target& target, const DeleteOptions& options) {
  if (options.all != options.names.empty()) {
    throw UsageError(options.all ? "--all takes no names"
                                 : "name the jobs to delete, or give --all");
  }
  if (!options.all) {
    return options.names;
  }
  std::vector<std::string> names;
  for (const auto& job : target.backend->list({target.namespace_name})) {
    names.push_back(job.name);
  }
  return names;
}

int run_delete(Context& context, const DeleteOptions& options) {
  const Target target = open_target(context, options.target);
  int status = k_exit_ok;
  for (const auto& name : names_to_delete(target, options)) {
    try {
      try {
        target.backend->remove(target.job(name));
      } catch (const NotFound&) {
        if (options.ignore_not_found) {
          continue;
        }
        target.status(name); // Throws with a suggestion.
        throw;
      }
      context.out.write(fmt::format("job/{} deleted\n", name));
    } catch (const Error& error) {
      // The others are still to be deleted.
      context.complain(error.what());
      status = exit_code(error);
    }
  }
  return status;
}

} // namespace

Invocation delete_command() { return bind(delete_table, run_delete); }

} // namespace dtrain
