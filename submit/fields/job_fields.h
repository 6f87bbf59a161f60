// Every field of a job, once: its flag, its key in a job file, its limits and its help. The
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

/// A member of JobSpec, or what an engine brings: call it with a job.
template <class Value>
struct Member {
  Value JobSpec::*of_job = nullptr;
  std::string_view key = "";       ///< Type of an engine's own field.
  const Value* standard = nullptr; ///< The value if nobody gives one; null: Value().

  Value& operator()(JobSpec& job) const {
    return of_job != nullptr ? job.*of_job : job.of_engines.at(key, usual());
  }
  const Value& operator()(const JobSpec& job) const {
    if (of_job != nullptr) {
      return job.*of_job;
    }
    const Value* value = job.of_engines.find<Value>(key);
    return value == nullptr ? usual() : *value;
  }
  bool operator==(const Member&) const = default;

 private:
  const Value& usual() const {
    static const Value none{};
    return standard == nullptr ? none : *standard;
  }
};

using JobMember =
    std::variant<Member<std::string>, Member<int>, Member<bool>, Member<std::vector<std::string>>>;

template <class Value>
constexpr JobMember member(Value JobSpec::*of_job) {
  return Member<Value>{of_job};
}

/// What a text must be, if there is no list of choices.
enum class Form {
  any,
  quantity, ///< 4, 500m, 16Gi
  pair,     ///< KEY=VALUE
};

/// Up to three; empty ones are none.
using FewWords = std::array<std::string_view, 3>;

struct JobField {
  std::string_view key;   ///< Its name in a job file: "maxRestarts".
  std::string_view flags; ///< "--max-restarts"; "": the field has no flag (the command, after --).
  JobMember member;
  std::string_view metavar;
  std::string_view help;
  std::string_view group = ""; ///< For an engine's own field, engine_fields() says it.
  std::int64_t minimum = INT64_MIN;
  std::int64_t maximum = INT64_MAX;
  bool duration = false;
  Complete complete = Complete::nothing;
  std::string_view env = "";
  FewWords choices = {};
  FewWords aliases = {}; ///< Other programs' names for the flag.
  Form form = Form::any;

  /// "--label" of "-l,--label"; of a field without a flag its key.
  std::string_view long_flag() const;
};

/// In the order of help and job files; the engines' own fields come last.
const std::vector<JobField>& job_fields();

/// The engines' own fields, one for each key. backends/engine.cpp knows which engines there are.
const std::vector<JobField>& engine_fields();

/// True where `job` has the field as a JobSpec that nobody touched has it.
bool is_default(const JobSpec& job, const JobField& field);

/// True where a job file has the field: the few of the first groups always, others where set.
bool is_in_job_file(const JobSpec& job, const JobField& field);

/// Text that follows a field's help, by key: what engines make of the field.
using FieldNotes = std::map<std::string, std::string, std::less<>>;

/// The flags of `dtrain submit` that set `job`. `backends` are the choices of --backend, the
/// default first; empty: anything.
std::vector<Option> job_options(JobSpec& job, const std::vector<std::string>& backends = {},
                                const FieldNotes& notes = {});

} // namespace dtrain
