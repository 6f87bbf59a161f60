// An engine's declaration of itself: a table in its own folder. --help, the man pages, Tab,
// profiles and the errors about what an engine does not take are made from these tables, so that no
// other folder names an engine.
#pragma once

#include "backends/backend.h"
#include "submit/fields/job_fields.h"
#include "submit/named_values.h"
#include "submit/options/environment.h"
#include "submit/options/option_table.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The values of the flags that choose among several engines of a kind (--kubeconfig, --context),
/// by their names. Options point to the values.
class EngineAccess {
 public:
  /// Empty: not said.
  std::string get(std::string_view name) const;
  std::string& operator[](std::string_view name);

  /// " --context=x", quoted for a shell: the flags given that are needed to find a job again.
  std::string flags() const;

 private:
  NamedValues values_;
};

/// A flag of every command that has a job, which this engine brings.
struct AccessFlag {
  std::string_view name; ///< "context", of --context.
  std::string_view metavar;
  std::string_view help;
  Complete complete = Complete::nothing;
  std::string_view env = "";
  std::string_view alias = "";
  bool in_profile = false;  ///< A profile may give it.
  bool picks_hosts = false; ///< Shown where jobs start or hosts are looked at: a job knows its own.
  /// With Complete::engine, the candidates of Tab.
  std::vector<std::string> (*values)(const EngineAccess&) = nullptr;
};

/// How an engine uses one field of job_fields().
struct FieldUse {
  enum class Kind { taken, unused, refused } kind;
  std::string_view key;
  std::string_view why = ""; ///< "runs no containers", of what is not taken.
};

/// Keys with the reason that they share.
struct FieldExcuse {
  std::string_view why; ///< "runs no containers"
  std::vector<std::string_view> keys;
};

/// Keys with those that each engine with a scheduler or a supervisor of its own takes.
std::vector<std::string_view> with_usual_fields(std::vector<std::string_view> keys);

std::vector<FieldUse> field_table(const std::vector<std::string_view>& taken,
                                  const std::vector<FieldExcuse>& unused,
                                  const std::vector<FieldExcuse>& refused);

/// What an engine makes of a field, if the field's help does not say it.
struct FieldNote {
  std::string_view key;
  std::string_view text; ///< "admits it by Kueue's LocalQueue"
};

/// Operations that not every engine has, each a function of Backend.
enum class Ability { try_plan, suspend, scale, exec, cp, top_node, top_job };

/// How a user asks for it: "scale", or the flag "--dry-run=server".
std::string_view ability_name(Ability ability);

/// An operation that an engine cannot do.
struct Lack {
  Ability ability;
  std::string_view why; ///< "gives a job its nodes once; …", with what to do instead.
};

/// A command of dtrain's that an engine runs for itself, in a process of its own; hidden.
struct Helper {
  std::string_view command;
  int (*run)(const std::vector<std::string>& args); ///< The exit status.
};

struct Engine {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const EngineAccess&);
  /// A field that is not among them or its own is refused: an engine takes nothing that it does not
  /// know of.
  std::vector<FieldUse> fields;
  std::vector<FieldNote> notes = {};
  std::vector<Lack> cannot = {}; ///< The Backend implements all others.
  std::vector<AccessFlag> access = {};
  /// Fields that it brings, which help shows in a group of its name. Of a key that an engine before
  /// it has too, the help follows that one's.
  std::vector<JobField> own = {};
  /// Variables that it reads, beside those of its flags.
  std::vector<EnvironmentVariable> variables = {};
  std::vector<Helper> helpers = {};
  /// Jobs have their records on this machine in RECORDS/NAMESPACE/NAME below state_folder(); empty:
  /// they have none.
  std::string_view records = "";

  /// How a field is used; refused if the engine does not list it.
  FieldUse use_of(std::string_view key) const;
  bool takes(std::string_view key) const { return use_of(key).kind == FieldUse::Kind::taken; }

  /// Null if it can.
  const Lack* lack_of(Ability ability) const;

  /// Throws UsageError with the reason where it cannot.
  void require(Ability ability) const;

  /// "Ssh": the group of its own flags in --help.
  std::string group() const;
};

/// All engines, the default first. registry.cpp is this list and nothing else.
const std::vector<const Engine*>& engines();

/// Throws UsageError with the known names for any other.
const Engine& find_engine(std::string_view name);

/// The names that `--backend` takes, the default first.
std::vector<std::string> backend_names();

std::unique_ptr<Backend> make_backend(std::string_view name, const EngineAccess& access = {});

/// The engines' helper of that name; null: none.
const Helper* find_helper(std::string_view command);

/// Variables of dtrain (variables_of_dtrain()), then those of its engines.
std::vector<EnvironmentVariable> environment_variables();

/// All engines' access flags, one for each name.
std::vector<AccessFlag> access_flags();

/// A field that an engine brings.
template <class Value>
JobField own_field(Member<Value> member, std::string_view flags, std::string_view metavar,
                   std::string_view help, Form form = Form::any) {
  return {.key = member.key,
          .flags = flags,
          .member = member,
          .metavar = metavar,
          .help = help,
          .form = form};
}

/// A text, whose key is its flag without dashes.
JobField text_field(std::string_view flag, std::string_view metavar, std::string_view help);

/// The value for that key; empty: not given.
std::string engine_value(const JobSpec& job, std::string_view key);

/// Throws UsageError naming flag and engine for a field that the engine refuses. Returns a line for
/// each field that it does not use.
std::vector<std::string> check_fields(const JobSpec& job);

/// "local, kubernetes": those that take the field of that key.
std::string engines_that_take(std::string_view key);

/// The same for the engines that cannot do it.
std::string engines_that_cannot(Ability ability);

/// "; kubernetes: admits it by Kueue's LocalQueue", of each field that an engine has a note on, or
/// brings as one before it does.
FieldNotes field_notes();

} // namespace dtrain
