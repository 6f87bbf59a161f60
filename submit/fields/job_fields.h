// Every field of JobSpec, once: its flag, its key in a job file, its limits and its help. The
// flags of `dtrain submit`, the job file's reader and writer, the man page and Tab completion are
// made from this table. Which engine takes which of them is the engine's to say
// (backends/engine.h).
//
// `submit -f job.yaml --workers=5` layers them, least first:
//
//   const Arguments arguments(table, args);
//   arguments.apply(ParsePass::all);                         // to learn --file, or to be done
//   job = JobSpec{};                                         // profile's values may go here
//   arguments.apply(ParsePass::environment);
//   job = read_job_yaml(text, file, std::move(job));
//   arguments.apply(ParsePass::flags);                       // --env is appended
#pragma once

#include "submit/job_spec.h"
#include "submit/options/option_table.h"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dtrain {

/// A member of JobSpec, or of one of its roles: call it with a job.
template <class Value>
struct Member {
  Value JobSpec::*of_job = nullptr;
  RoleOptions JobSpec::*role = nullptr;
  Value RoleOptions::*of_role = nullptr;

  Value& operator()(JobSpec& job) const {
    return of_job != nullptr ? job.*of_job : job.*role.*of_role;
  }
  const Value& operator()(const JobSpec& job) const {
    return of_job != nullptr ? job.*of_job : job.*role.*of_role;
  }
  bool operator==(const Member&) const = default;
};

using JobMember =
    std::variant<Member<std::string>, Member<int>, Member<bool>, Member<std::vector<std::string>>>;

template <class Value>
constexpr JobMember member(Value JobSpec::*of_job) {
  return Member<Value>{of_job};
}
template <class Value>
constexpr JobMember member(RoleOptions JobSpec::*role, Value RoleOptions::*of_role) {
  return Member<Value>{nullptr, role, of_role};
}

/// Up to three; empty ones are none.
using FewWords = std::array<std::string_view, 3>;

struct JobField {
  std::string_view key;   ///< In a job file: "maxRestarts".
  std::string_view flags; ///< "--max-restarts"; "": the field has no flag (the command, after --).
  JobMember member;
  std::string_view metavar;
  std::string_view help;
  std::string_view group;
  std::int64_t minimum = INT64_MIN;
  std::int64_t maximum = INT64_MAX;
  bool duration = false;
  Complete complete = Complete::nothing;
  std::string_view env = "";
  FewWords choices = {};
  FewWords aliases = {}; ///< What other programs call the flag.
};

/// In the order in which help and job files show them.
const std::vector<JobField>& job_fields();

/// True where `job` has the field as a JobSpec that nobody touched has it.
bool is_default(const JobSpec& job, const JobField& field);

/// True where a job file has the field: the few of the first groups always, others where set.
bool is_in_job_file(const JobSpec& job, const JobField& field);

/// What is said of a field behind its help, by its key: what engines make of it.
using FieldNotes = std::map<std::string, std::string, std::less<>>;

/// The flags of `dtrain submit` that set `job`. `backends` are the choices of --backend, the
/// default first; empty: anything.
std::vector<Option> job_options(JobSpec& job, const std::vector<std::string>& backends = {},
                                const FieldNotes& notes = {});

} // namespace dtrain
