// The flags of `submit` and `clone`, and how they become a job.
#pragma once

#include "cli/context.h"
#include "submit/fields/arena.h"
#include "submit/job_spec.h"
#include "submit/options/option_table.h"

#include <string>
#include <vector>

namespace dtrain {

struct SubmitOptions {
  JobSpec job;
  ArenaFlags arena;
  std::vector<std::string> notices; ///< Flags that were given and do nothing.
  std::string type;
  std::vector<std::string> command_words; ///< Arena's form of the command: one string for a shell.
  std::string shell;
  std::string code;      ///< Named code.
  std::string cloned;    ///< The job that `clone` submits again.
  bool has_rest = false; ///< A command after -- was given.
  std::string file;
  std::string profile;
  EngineAccess access;
  std::string output;
  bool wait = false;
  std::string dry_run;
  bool quiet = false;
};

/// The options fill `options`, which outlives them.
CommandTable submit_table(SubmitOptions& options);
CommandTable clone_table(SubmitOptions& options);

/// Fills `options` in layers, each over the one before: default, profile, environment, job file,
/// flags. Returns false where --help was asked for.
bool parse_submit(const Context& context, SubmitOptions& options, const CommandTable& table,
                  const std::vector<std::string>& args);

/// `clone`: the job as it was submitted, under a new name, with the changes of the flags.
bool parse_clone(const Context& context, SubmitOptions& options, const CommandTable& table,
                 const std::vector<std::string>& args);

} // namespace dtrain
