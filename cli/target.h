// Where a command works: which backend, cluster and namespace. A flag overrides the environment,
// which overrides the profile, which overrides the backend's default.
#pragma once

#include "cli/context.h"
#include "cli/settings/settings.h"
#include "submit/fields/arena.h"
#include "submit/options/option_table.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrain {

inline constexpr const char* k_default_namespace = "default";

std::string default_backend();

/// The flags that every command with a job has.
struct TargetOptions {
  std::string backend;        ///< Empty: not said.
  std::string namespace_name; ///< Empty: not said.
  std::string profile;        ///< Empty: the current one.
  EngineAccess access;
  ArenaFlags arena; ///< Flags of all of Arena's commands.
  std::string arena_type;
  std::optional<Ability> needs = {}; ///< What the command needs from the backend's table.
};

/// -b, -n, --profile and access_options().
std::vector<Option> target_options(TargetOptions& target, bool picks_hosts = false);

/// Adds these flags to the command, and --type, which Arena gives beside a name, if it has none;
/// adds to the help which backends cannot do what the command needs.
void add_target(CommandTable& table, TargetOptions& target, bool picks_hosts = false);

/// NAME of "NAME" or "TYPE/NAME", as -o name prints it. Throws UsageError for anything else.
std::string read_job_name(std::string_view what, const std::string& text);

/// A word before a job's name that says what it is, as in "job mnist".
bool is_type_word(std::string_view word);

/// -i of a command that takes one instance, and -c, which other tools' command lines have.
Option instance_argument(OptionTarget target);
Option container_argument(OptionTarget target);

/// The positional NAME of a job, or of several where `target` is a vector: NAME, TYPE/NAME, or TYPE
/// and NAME as two words.
Option job_argument(OptionTarget target, const char* help = "The job's name", bool required = true);

/// --profile alone.
Option profile_option(std::string& profile);

/// The engines' own, with which one is chosen among several. Those that pick hosts are taken by
/// every command, as a script may give them to all, and shown where `picks_hosts`.
std::vector<Option> access_options(EngineAccess& access, bool picks_hosts);

/// With the profile's values; an empty namespace means the backend's default.
TargetOptions resolve_target(const Context& context, TargetOptions target);

/// A backend at work in one namespace.
struct Target {
  std::unique_ptr<Backend> backend;
  std::string namespace_name;

  JobRef job(const std::string& name) const { return {namespace_name, name}; }

  /// The job's status. Throws NotFound with the name of the nearest job, or with the backend or
  /// namespace where the job is.
  JobStatus status(const std::string& name) const;
};

/// The instance of that name, or of Arena's longer one: "mnist-worker-0" is mnist's worker-0.
/// Throws NotFound with those there are.
std::string instance_named(const JobStatus& job, const std::string& name);

/// The instance of -i, given at most once; default: the chief.
std::string chosen_instance(const JobStatus& job, const std::vector<std::string>& named);

/// A line for a namespace without jobs, naming other backends that have jobs there.
std::string no_jobs_text(const Target& target);

/// The namespace is the backend's default where none is named.
Target make_target(const Context& context, const std::string& backend, const EngineAccess& access,
                   std::string namespace_name);

/// Throws UsageError if the backend's table says that it cannot do what the command needs.
Target open_target(const Context& context, const TargetOptions& target);

} // namespace dtrain
