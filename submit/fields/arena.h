// Arena's flags without an equal among ours: each becomes the field that does its work, or is
// accepted with one line that says why there is nothing to do. The rest of Arena's flags are fields
// in job_fields.h.
#pragma once

#include "submit/job_spec.h"
#include "submit/options/man_page.h"
#include "submit/options/option_table.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrain {

/// What a line of Arena's gave that is not a field of a job.
struct ArenaFlags {
  std::string job_restart_policy;
  std::string worker_restart_policy;
  std::string worker_affinity_policy;
  std::string worker_affinity_constraint;
  std::string ps_affinity_policy;
  std::string ps_affinity_constraint;
  std::string ignored; ///< Values of flags that do nothing here.
  bool ignored_switch = false;
};

/// Options for `dtrain submit`, hidden from its help.
std::vector<Option> arena_options(ArenaFlags& flags);

/// Flags that all of Arena's commands have, and that change nothing here.
std::vector<Option> arena_global_options(ArenaFlags& flags);

/// Whether a job file may have this key though nothing is done with it: of a flag that has become
/// one of arena_options().
bool is_idle_key(std::string_view key);

/// Throws UsageError for what lines of other programs say and would be misread here, with what to
/// write instead: Arena's --sync-mode=rsync, mpirun's -np, pdsh's -x.
void refuse_misread(const std::vector<std::string>& args);

/// Sets in `job` what `flags` ask for, and what Arena reads from the job's variables
/// (GIT_SYNC_BRANCH). Returns a line for each choice. Throws UsageError for what no job can have.
std::vector<std::string> apply_arena(const ArenaFlags& flags, JobSpec& job);

/// The command that Arena runs where it is given `words` as STRING, for a shell. It goes through a
/// YAML scalar there: quotes around all of it are taken off, and lines are joined where one begins
/// with a flag.
std::string arena_command(const std::vector<std::string>& words);

/// Gives the ranks those of Arena's variables (workers, gpus, minWorkers, maxWorkers) that the
/// command speaks of.
void add_arena_variables(const std::string& command, JobSpec& job);

/// The flags of Arena v0.15.5's job types, without Spark's, "-a --annotation" as "--annotation".
const std::vector<std::string>& arena_flags();

/// The names of the backends that take the field of this key: "a, b".
using FieldBackends = std::function<std::string(std::string_view key)>;

/// dtrain-arena(7): each of those flags with what `table`, submit's, makes of it.
std::string man_arena(const ManContext& context, const CommandTable& table,
                      const FieldBackends& backends);

} // namespace dtrain
