#include "submit/fields/job_fields.h"

#include "submit/fields/job_field_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

namespace dtrain {
namespace {

constexpr int k_max_gpus = 64; ///< More than any machine holds.
constexpr int k_max_restarts = 1'000'000;
constexpr int k_max_grace_ms = 3'600'000;

constexpr const char* k_cluster_group = "Cluster";

constexpr JobField k_first_fields[] = {
    {.key = "type",
     .flags = "",
     .member = member(&JobSpec::type),
     .metavar = "TYPE",
     .help = "Job type, which says what starts and how instances find each other: tfjob, "
             "pytorchjob, mpijob, horovodjob, etjob, deepspeedjob, rayjob or volcanojob",
     .group = "Job"},
    {.key = "name",
     .flags = "--name",
     .member = member(&JobSpec::name),
     .metavar = "NAME",
     .help = "Name of the job, a DNS label (default: a random one)",
     .group = "Job"},
    {.key = "workers",
     .flags = "--workers",
     .member = member(&JobSpec::workers),
     .metavar = "N",
     .help = "Number of workers, each one rank (default: 1)",
     .group = "Job",
     .minimum = 1,
     .maximum = k_max_workers,
     .aliases = {"--worker-replicas"}},
    {.key = "gpus",
     .flags = "--gpus",
     .member = member(&JobSpec::gpus),
     .metavar = "N",
     .help = "GPUs per worker (default: 0)",
     .group = "Job",
     .minimum = 0,
     .maximum = k_max_gpus,
     .aliases = {"--worker-gpu"}},
    {.key = "requireGpus",
     .flags = "--require-gpus",
     .member = member(&JobSpec::require_gpus),
     .metavar = "",
     .help = "Fail if there are fewer GPUs than --gpus asks for",
     .group = "Job"},
    {.key = "checkGpus",
     .flags = "--check-gpus",
     .member = member(&JobSpec::check_gpus),
     .metavar = "WHETHER",
     .help = "Check GPUs before ranks start. on: by nvidia-smi, if it is installed: a GPU that is "
             "lost, or has uncorrectable ECC errors or pending row remaps, is replaced by a free "
             "one, or the job fails and names it; measure: also run dtrain-trainer check-gpus on "
             "the job's GPUs, which takes some seconds, and replace those that compute wrong or "
             "are slow; off: no check (default: on)",
     .group = "Job",
     .choices = {"on", "measure", "off"}},
    {.key = "gpusVisible",
     .flags = "--gpus-visible",
     .member = member(&JobSpec::gpus_visible),
     .metavar = "WHOSE",
     .help = "GPUs that a rank sees: node, all of the job's on its machine, where LOCAL_RANK picks "
             "its own; or rank, only its own, with LOCAL_RANK=0 (default: node with one GPU per "
             "worker; rank with several, for a tfjob or rayjob, and with --nproc-per-node, "
             "--max-workers or --min-workers)",
     .group = "Job",
     .choices = {"node", "rank"}},
    {.key = "env",
     .flags = "-e,--env",
     .member = member(&JobSpec::env),
     .metavar = "KEY=VALUE",
     .help = "Environment variable for every rank; may be repeated",
     .group = "Job"},
    {.key = "workingDir",
     .flags = "--working-dir",
     .member = member(&JobSpec::working_dir),
     .metavar = "DIR",
     .help = "Folder the ranks start in (default: the current one)",
     .group = "Job",
     .complete = Complete::directory},
    {.key = "maxRestarts",
     .flags = "--max-restarts",
     .member = member(&JobSpec::max_restarts),
     .metavar = "N",
     .help = "Restart the whole job after a failure, up to N times (default: 0)",
     .group = "Failures",
     .minimum = 0,
     .maximum = k_max_restarts,
     .aliases = {"--retry", "--job-backoff-limit"}},
    {.key = "gracePeriod",
     .flags = "--grace-period",
     .member = member(&JobSpec::grace_period_ms),
     .metavar = "TIME",
     .help = "Time between SIGTERM and SIGKILL when ranks are stopped (default: 1s)",
     .group = "Failures",
     .minimum = 0,
     .maximum = k_max_grace_ms,
     .duration = true},
    {.key = "namespace",
     .flags = "-n,--namespace",
     .member = member(&JobSpec::namespace_name),
     .metavar = "NAME",
     .help = "Namespace of the job (default: the context's, or default)",
     .group = "Where",
     .env = "DTRAIN_NAMESPACE"},
    {.key = "backend",
     .flags = "-b,--backend",
     .member = member(&JobSpec::backend),
     .metavar = "NAME",
     .help = "Engine that runs the job",
     .group = "Where",
     .complete = Complete::choices,
     .env = "DTRAIN_BACKEND"},
    {.key = "priority",
     .flags = "-p,--priority",
     .member = member(&JobSpec::priority),
     .metavar = "CLASS",
     .help = "Priority class of the job",
     .group = "Where"},
    {.key = "command",
     .flags = "",
     .member = member(&JobSpec::command),
     .metavar = "",
     .help = "The command that every rank runs, one word per item",
     .group = "Job"},
};

constexpr JobField k_container_fields[] = {
    {.key = "image",
     .flags = "--image",
     .member = member(&JobSpec::image),
     .metavar = "IMAGE",
     .help = "Container image the ranks run in",
     .group = k_cluster_group,
     .env = "DTRAIN_IMAGE"},
    {.key = "cpu",
     .flags = "--cpu",
     .member = member(&JobSpec::cpu),
     .metavar = "N",
     .help = "CPUs per worker (4, 500m)",
     .group = k_cluster_group,
     .aliases = {"--task-cpu"},
     .form = Form::quantity},
    {.key = "memory",
     .flags = "--memory",
     .member = member(&JobSpec::memory),
     .metavar = "SIZE",
     .help = "Memory per worker (16Gi)",
     .group = k_cluster_group,
     .aliases = {"--task-memory"},
     .form = Form::quantity},
    {.key = "data",
     .flags = "-d,--data",
     .member = member(&JobSpec::data),
     .metavar = "NAME:/PATH",
     .help = "Data to mount: a name from 'dtrain data list', a persistent volume claim, or an "
             "address: nas://SERVER/PATH, oss://BUCKET/PREFIX:/PATH:ro, "
             "s3://BUCKET/PREFIX:/PATH:ro, csi://DRIVER?KEY=VALUE&...; may be repeated (a bucket "
             "is copied before the job starts, as 'dtrain data copy' does)",
     .group = k_cluster_group,
     .complete = Complete::data_mount},
    {.key = "dataDirs",
     .flags = "--data-dir",
     .member = member(&JobSpec::data_dirs),
     .metavar = "/NODE/PATH[:/PATH[:ro]]",
     .help = "Folder of the node to mount, at the same path or another; may be repeated",
     .group = k_cluster_group},
    {.key = "queue",
     .flags = "--queue",
     .member = member(&JobSpec::queue),
     .metavar = "NAME",
     .help = "Queue that admits the job; get shows its position and why it waits",
     .group = k_cluster_group},
};

std::vector<std::string> strings(const FewWords& words) {
  return {words.begin(), std::find(words.begin(), words.end(), "")};
}

} // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> all = [] {
    std::vector<JobField> fields;
    for (const auto& some : std::initializer_list<std::span<const JobField>>{
             k_first_fields, role_fields(), life_cycle_fields(), code_fields(), k_container_fields,
             placement_fields(), engine_fields()}) {
      fields.insert(fields.end(), some.begin(), some.end());
    }
    return fields;
  }();
  return all;
}

std::string_view JobField::long_flag() const {
  const std::size_t dashes = flags.find("--");
  return dashes == std::string_view::npos ? key : flags.substr(dashes);
}

bool is_default(const JobSpec& job, const JobField& field) {
  static const JobSpec defaults;
  return std::visit([&](auto member) { return member(job) == member(defaults); }, field.member);
}

bool is_in_job_file(const JobSpec& job, const JobField& field) {
  static constexpr std::array<std::string_view, 3> k_always = {"Job", "Failures", "Where"};
  const bool always = field.key != "type" &&
                      std::find(k_always.begin(), k_always.end(), field.group) != k_always.end();
  return always || !is_default(job, field);
}

std::vector<Option> job_options(JobSpec& job, const std::vector<std::string>& backends,
                                const FieldNotes& notes) {
  std::vector<Option> options;
  options.reserve(job_fields().size());
  for (const JobField& field : job_fields()) {
    if (field.flags.empty()) {
      continue;
    }
    const OptionTarget target =
        std::visit([&](auto member) { return OptionTarget(&member(job)); }, field.member);
    options.push_back({.flags = std::string(field.flags),
                       .target = target,
                       .metavar = std::string(field.metavar),
                       .help = std::string(field.help),
                       .group = std::string(field.group),
                       .complete = field.complete,
                       .choices = strings(field.choices),
                       .minimum = field.minimum,
                       .maximum = field.maximum,
                       .env = std::string(field.env),
                       .duration = field.duration,
                       .aliases = strings(field.aliases),
                       .field = field.key});
    if (const auto note = notes.find(field.key); note != notes.end()) {
      options.back().help += note->second;
    }
    if (field.key == "backend") {
      options.back().choices = backends;
      options.back().help += backends.empty() ? "" : fmt::format(" (default: {})", backends[0]);
    }
  }
  return options;
}

} // namespace dtrain
