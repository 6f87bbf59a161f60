#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/job_filter.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace dtrain {
namespace {

struct DeleteOptions {
  std::vector<std::string> names;
  bool all = false;
  bool ignore_not_found = false;
  std::vector<std::string> selectors;
  std::string save_logs;
  TargetOptions target;
};

CommandTable delete_table(DeleteOptions& options) {
  CommandTable table = {
      .name = "delete",
      .summary = "End jobs and remove them",
      .description =
          "Ends every process of the jobs named and removes their records and logs. If one cannot "
          "be deleted, the others still are.",
      .examples = {"dtrain delete mnist", "# All of a team's",
                   "dtrain delete -l team=vision --save-logs=old"},
      .options = {job_argument(&options.names, "A job to delete", false),
                  {.flags = "--all", .target = &options.all, .help = "Every job of the namespace"},
                  selector_option(options.selectors),
                  {.flags = "--ignore-not-found",
                   .target = &options.ignore_not_found,
                   .help = "Report missing jobs instead of failing"},
                  {.flags = "--save-logs",
                   .target = &options.save_logs,
                   .metavar = "DIR",
                   .help = "Copy the logs to DIR/NAME/INSTANCE.log first; a job whose logs cannot "
                           "be copied is kept",
                   .complete = Complete::directory,
                   .env = "DTRAIN_SAVE_LOGS"}}};
  add_target(table, options.target);
  return table;
}

std::vector<std::string> names_to_delete(const Target& target, const DeleteOptions& options) {
  const bool many = options.all || !options.selectors.empty();
  if (many != options.names.empty()) {
    throw UsageError(many ? "--all and --selector take no names"
                          : "name the jobs to delete, or give --selector or --all");
  }
  return options.all && options.selectors.empty()
             ? target.backend->names({target.namespace_name})
             : names_of(target, options.names, options.selectors);
}

/// Writes every instance's log to a file of its own. Throws Error where one cannot be written.
void save_logs(const Target& target, const std::string& name, const std::filesystem::path& folder) {
  const JobStatus job = target.status(name);
  std::error_code error;
  std::filesystem::create_directories(folder / name, error);
  std::map<std::string, std::ofstream, std::less<>> files;
  const auto file_of = [&](std::string_view instance) -> std::ofstream& {
    const auto known = files.find(instance);
    if (known != files.end()) {
      return known->second;
    }
    const auto path = folder / name / fmt::format("{}.log", instance);
    std::filesystem::create_directories(path.parent_path(), error);
    auto& file = files[std::string(instance)];
    file.open(path, std::ios::binary);
    if (!file) {
      throw Error(fmt::format("--save-logs: cannot write {}: {}", printable(path.string()),
                              std::strerror(errno)));
    }
    return file;
  };
  for (const auto& instance : job.instances) {
    file_of(instance.name); // Also if it has written nothing.
  }
  target.backend->logs(target.job(name), {}, [&](const LogLine& line) {
    // A `scale` may have added its instance in the meantime.
    file_of(line.instance) << line.text << (line.complete ? "\n" : "");
    return true;
  });
  for (auto& [instance, file] : files) {
    file.close();
    if (!file) {
      throw Error(fmt::format("--save-logs: cannot write the log of {}: {}", instance,
                              std::strerror(errno)));
    }
  }
}

/// Names the job that may have been meant, or repeats the name if somebody has just created such a
/// job.
void complain_of_missing(const Context& context, const Target& target, const std::string& name,
                         const NotFound& said) {
  try {
    target.status(name);
    context.complain(said.what());
  } catch (const NotFound& error) {
    context.complain(error.what());
  }
}

int run_delete(Context& context, const DeleteOptions& options) {
  const Target target = open_target(context, options.target);
  int status = k_exit_ok;
  const auto names = names_to_delete(target, options);
  if (names.empty()) {
    context.note("No such jobs.");
  }
  for (const auto& name : names) {
    try {
      try {
        if (!options.save_logs.empty()) {
          save_logs(target, name, options.save_logs);
        }
        target.backend->remove(target.job(name));
      } catch (const NotFound& gone) {
        complain_of_missing(context, target, name, gone);
        if (!options.ignore_not_found && status == k_exit_ok) {
          status = k_exit_not_found;
        }
        continue;
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
