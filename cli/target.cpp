#include "cli/target.h"

#include "backends/engine.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/options/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

namespace dtrain {
namespace {

/// Looks in all namespaces, or in those that are readable: a hint is not worth an error.
std::vector<JobSummary> jobs_for_hint(Backend& backend, const std::string& namespace_name) {
  for (const ListQuery& query : {ListQuery{}, ListQuery{namespace_name}}) {
    try {
      return backend.list(query);
    } catch (const EngineError&) {
    }
  }
  return {};
}

/// The engines, but for one, that have a folder of records there, a job's or a namespace's.
std::vector<std::string_view> other_engines_with(std::string_view but, const std::string& path) {
  std::vector<std::string_view> found;
  std::error_code error;
  const auto has_records = [&](const Engine& engine) {
    using Entries = std::filesystem::directory_iterator;
    return Entries(state_folder() / engine.records / path, error) != Entries();
  };
  try {
    for (const Engine* engine : engines()) {
      if (engine->name != but && !engine->records.empty() && has_records(*engine)) {
        found.push_back(engine->name);
      }
    }
  } catch (const Error&) { // Nobody says where home is.
  }
  return found;
}

[[noreturn]] void throw_no_job(Backend& backend, const JobRef& job) {
  std::vector<std::string> names;
  std::string elsewhere;
  for (const auto& other : jobs_for_hint(backend, job.namespace_name)) {
    if (other.namespace_name == job.namespace_name) {
      names.push_back(other.name);
    } else if (other.name == job.name) {
      elsewhere = other.namespace_name;
    }
  }
  std::string hint = fmt::format("'dtrain list --backend={}' shows all", backend.name());
  const auto others =
      other_engines_with(backend.name(), fmt::format("{}/{}", job.namespace_name, job.name));
  if (!others.empty()) {
    hint = fmt::format("the {0} backend has one: add --backend={0}", others.front());
  } else if (!elsewhere.empty()) {
    hint = fmt::format("namespace '{}' has one: add --namespace={}", elsewhere, elsewhere);
  } else if (const auto near = nearest(job.name, names)) {
    hint = fmt::format("did you mean '{}'?", *near);
  }
  throw NotFound(fmt::format("no job '{}' in namespace '{}'; {}", printable(job.name),
                             printable(job.namespace_name), hint));
}

std::string read_namespace(std::string_view flag, const std::string& text) {
  require_dns_label(flag, text);
  return text;
}

} // namespace

std::string default_backend() { return backend_names().front(); }

Option profile_option(std::string& profile) {
  return {.flags = "--profile",
          .target = &profile,
          .metavar = "NAME",
          .help = "Profile to take defaults from (default: the current one)",
          .group = "Where",
          .complete = Complete::profile,
          .env = "DTRAIN_PROFILE"};
}

std::vector<Option> access_options(EngineAccess& access, bool picks_hosts) {
  std::vector<Option> options;
  for (const AccessFlag& flag : access_flags()) {
    options.push_back({.flags = fmt::format("--{}", flag.name),
                       .target = &access[flag.name],
                       .metavar = std::string(flag.metavar),
                       .help = std::string(flag.help),
                       .group = "Where",
                       .complete = flag.complete,
                       .env = std::string(flag.env),
                       .hidden = flag.picks_hosts && !picks_hosts});
    if (!flag.alias.empty()) {
      options.back().aliases.emplace_back(flag.alias);
    }
  }
  return options;
}

std::vector<Option> target_options(TargetOptions& target, bool picks_hosts) {
  std::vector<Option> options = {
      {.flags = "-n,--namespace",
       .target = &target.namespace_name,
       .metavar = "NAME",
       .help = "Namespace of the job (default: the context's, or default)",
       .group = "Where",
       .env = "DTRAIN_NAMESPACE",
       .read = read_namespace},
      {.flags = "-b,--backend",
       .target = &target.backend,
       .metavar = "NAME",
       .help = fmt::format("Engine that runs the job (default: {})", default_backend()),
       .group = "Where",
       .complete = Complete::choices,
       .choices = backend_names(),
       .env = "DTRAIN_BACKEND"},
      profile_option(target.profile),
  };
  for (auto& option : access_options(target.access, picks_hosts)) {
    options.push_back(std::move(option));
  }
  return options;
}

void add_target(CommandTable& table, TargetOptions& target, bool picks_hosts) {
  for (const Engine* engine : engines()) {
    if (const Lack* lack = target.needs ? engine->lack_of(*target.needs) : nullptr) {
      table.description += fmt::format(" The {} backend {}.", engine->name, lack->why);
    }
  }
  for (auto& option : target_options(target, picks_hosts)) {
    table.options.push_back(std::move(option));
  }
  for (auto& option : arena_global_options(target.arena)) {
    table.options.push_back(std::move(option));
  }
  if (table.find("--type") == nullptr) {
    table.options.push_back({.flags = "-T,--type",
                             .target = &target.arena_type,
                             .metavar = "TYPE",
                             .help = "Not needed: a job's name is enough",
                             .hidden = true});
  }
}

std::string read_job_name(std::string_view what, const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string type = text.substr(0, slash == std::string::npos ? 0 : slash);
  const bool known = slash == std::string::npos || type == "job" || type == "jobs" ||
                     (!type.empty() && find_job_type(type) != nullptr);
  std::string name = known ? text.substr(type.empty() ? 0 : slash + 1) : "";
  if (!known || name.empty() || name.find('/') != std::string::npos) {
    throw UsageError(text.empty()
                         ? fmt::format("{}: the job's name is empty", what)
                         : fmt::format("{} '{}': must be a job's name, or job/NAME as -o name "
                                       "prints it",
                                       what, printable(text)));
  }
  return name;
}

/// As in other tools: "get job mnist". The short types are more likely names of jobs.
bool is_type_word(std::string_view word) {
  const JobType* type = find_job_type(word);
  return word == "job" || word == "jobs" ||
         (type != nullptr && type->name == word && !word.empty());
}

Option instance_argument(OptionTarget target) {
  return {.flags = "-i,--instance",
          .target = target,
          .metavar = "NAME",
          .help = "The instance (default: the chief)",
          .complete = Complete::instance};
}

Option container_argument(OptionTarget target) {
  return {.flags = "-c,--container",
          .target = target,
          .metavar = "NAME",
          .help = "For other tools' command lines: the program's container is always used",
          .hidden = true};
}

Option job_argument(OptionTarget target, const char* help, bool required) {
  return {.flags = "NAME",
          .target = target,
          .help = help,
          .complete = Complete::job,
          .required = required,
          .positional = true,
          .read = read_job_name,
          .joins_next = is_type_word};
}

TargetOptions resolve_target(const Context& context, TargetOptions target) {
  const Settings settings = read_settings(context.config_file);
  const auto fill = [&](std::string& value, std::string_view key, const std::string& otherwise) {
    if (value.empty()) {
      value = profile_value(settings, target.profile, key).value_or(otherwise);
    }
  };
  fill(target.backend, "backend", default_backend());
  fill(target.namespace_name, "namespace", "");
  for (const AccessFlag& flag : access_flags()) {
    if (flag.in_profile) {
      fill(target.access[flag.name], flag.name, "");
    }
  }
  return target;
}

JobStatus Target::status(const std::string& name) const {
  try {
    return backend->status(job(name));
  } catch (const NotFound&) {
    throw_no_job(*backend, job(name));
  }
}

std::string instance_named(const JobStatus& job, const std::string& name) {
  std::string instance = name;
  if (instance.starts_with(job.name + "-")) {
    instance.erase(0, job.name.size() + 1);
  }
  std::vector<std::string> known;
  for (const auto& each : job.instances) {
    if (each.name == name || each.name == instance) {
      return each.name;
    }
    known.push_back(each.name);
  }
  constexpr std::size_t k_few = 8;
  const auto near = nearest(instance, known);
  std::string hint;
  if (near) {
    hint = fmt::format("did you mean '{}'?", *near);
  } else if (known.size() <= k_few) {
    hint = fmt::format("it has {}", fmt::join(known, ", "));
  } else {
    hint = fmt::format("it has {} to {}", known.front(), known.back());
  }
  throw NotFound(fmt::format("job '{}' has no instance '{}'; {}", job.name, printable(name), hint));
}

std::string chosen_instance(const JobStatus& job, const std::vector<std::string>& named) {
  if (named.size() > 1) {
    throw UsageError("-i is given twice: name one instance");
  }
  if (!named.empty()) {
    return instance_named(job, named[0]);
  }
  for (const auto& each : job.instances) {
    if (each.is_chief) {
      return each.name;
    }
  }
  return "";
}

std::string no_jobs_text(const Target& target) {
  const auto others = other_engines_with(target.backend->name(), target.namespace_name);
  return others.empty()
             ? fmt::format("No jobs in namespace '{}'.", target.namespace_name)
             : fmt::format("No jobs of the {} backend in namespace '{}'; {} has some: add "
                           "--backend={}",
                           target.backend->name(), target.namespace_name,
                           fmt::join(others, " and "), others.front());
}

Target make_target(const Context& context, const std::string& backend, const EngineAccess& access,
                   std::string namespace_name) {
  Target target = {context.make_backend(backend, access), std::move(namespace_name)};
  if (target.namespace_name.empty()) {
    target.namespace_name = target.backend->default_namespace();
  }
  return target;
}

Target open_target(const Context& context, const TargetOptions& target) {
  const TargetOptions resolved = resolve_target(context, target);
  if (target.needs) {
    find_engine(resolved.backend).require(*target.needs);
  }
  return make_target(context, resolved.backend, resolved.access, resolved.namespace_name);
}

} // namespace dtrain
