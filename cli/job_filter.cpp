#include "cli/job_filter.h"

#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/job_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace dtrain {
namespace {

std::vector<std::string> split_at_commas(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const auto& value : values) {
    for (std::size_t begin = 0; begin <= value.size();) {
      const auto end = std::min(value.find(',', begin), value.size());
      parts.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

struct Requirement {
  std::string label; ///< KEY=VALUE, or KEY alone.
  bool has_value = false;
  bool wanted = true;
};

Requirement parse_requirement(const std::string& text) {
  const auto equals = text.find('=');
  const bool negated = equals != std::string::npos && equals > 0 && text[equals - 1] == '!';
  const std::string key = text.substr(0, equals == std::string::npos ? equals : equals - negated);
  if (key.empty()) {
    throw UsageError(
        fmt::format("--selector={}: must be KEY=VALUE, KEY!=VALUE or KEY", printable(text)));
  }
  require_label("--selector", equals == std::string::npos ? key : key + text.substr(equals));
  if (equals == std::string::npos) {
    return {key, false, true};
  }
  return {key + text.substr(equals), true, !negated};
}

bool meets(const JobSummary& job, const Requirement& requirement) {
  const bool found =
      std::any_of(job.labels.begin(), job.labels.end(), [&](const std::string& label) {
        return requirement.has_value ? label == requirement.label
                                     : label.starts_with(requirement.label + "=");
      });
  return found == requirement.wanted;
}

Phase parse_status(const std::string& text) {
  constexpr std::array k_phases = {Phase::queuing, Phase::suspended, Phase::pending,
                                   Phase::running, Phase::succeeded, Phase::failed};
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::vector<std::string_view> names;
  for (const auto phase : k_phases) {
    if (upper == phase_name(phase)) {
      return phase;
    }
    names.push_back(phase_name(phase));
  }
  throw UsageError(
      fmt::format("--status={}: must be one of {}", printable(text), fmt::join(names, ", ")));
}

/// Arena's -T says py of a pytorchjob, too.
std::string read_type(std::string_view flag, const std::string& text) {
  for (const JobType& type : job_types()) {
    if (!text.empty() && (type.name == text || type.alias == text ||
                          (text.size() > 1 && type.name.starts_with(text)))) {
      return type.trainer;
    }
  }
  throw UsageError(fmt::format("{}: is not a job type; types are tfjob, pytorchjob, mpijob, "
                               "horovodjob, etjob, deepspeedjob, rayjob and volcanojob",
                               printable(flag)));
}

} // namespace

Option selector_option(std::vector<std::string>& selectors) {
  return {.flags = "-l,--selector",
          .target = &selectors,
          .metavar = "KEY=VALUE",
          .help = "Only jobs with this label: KEY=VALUE, KEY!=VALUE or KEY; may be repeated"};
}

Option status_option(std::vector<std::string>& statuses) {
  return {.flags = "--status",
          .target = &statuses,
          .metavar = "STATUS",
          .help =
              "Only jobs that are queuing, suspended, pending, running, succeeded or failed; may "
              "be repeated",
          .complete = Complete::job_status};
}

Option type_option(std::string& trainer) {
  return {.flags = "-T,--type",
          .target = &trainer,
          .metavar = "TYPE",
          .help = "Only jobs of this type, such as tfjob",
          .complete = Complete::job_type,
          .read = read_type};
}

void filter_jobs(std::vector<JobSummary>& jobs, const std::vector<std::string>& selectors,
                 const std::vector<std::string>& statuses, std::string_view trainer) {
  std::vector<Requirement> requirements;
  for (const auto& text : split_at_commas(selectors)) {
    requirements.push_back(parse_requirement(text));
  }
  std::vector<Phase> phases;
  for (const auto& text : split_at_commas(statuses)) {
    phases.push_back(parse_status(text));
  }
  std::erase_if(jobs, [&](const JobSummary& job) {
    const bool in_phase =
        phases.empty() || std::find(phases.begin(), phases.end(), job.phase) != phases.end();
    const bool of_type = trainer.empty() || job.trainer == trainer;
    return !in_phase || !of_type ||
           !std::all_of(requirements.begin(), requirements.end(),
                        [&](const auto& each) { return meets(job, each); });
  });
}

std::vector<std::string> names_of(const Target& target, const std::vector<std::string>& names,
                                  const std::vector<std::string>& selectors) {
  if (selectors.empty()) {
    return names;
  }
  if (!names.empty()) {
    throw UsageError("--selector takes no names: give one or the other");
  }
  auto jobs = target.backend->list({target.namespace_name});
  filter_jobs(jobs, selectors, {});
  std::vector<std::string> found;
  found.reserve(jobs.size());
  for (auto& job : jobs) {
    found.push_back(std::move(job.name));
  }
  return found;
}

} // namespace dtrain
