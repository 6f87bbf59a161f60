#include "backends/slurm/script.h"

#include "backends/batch/queued_job.h"
#include "backends/batch/script_data.h"
#include "backends/engine.h"
#include "backends/slurm/sbatch_template.h"
#include "backends/slurm/system.h"
#include "submit/errors.h"
#include "submit/gpu_view.h"
#include "submit/template/sections.h"
#include "submit/template/templates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

namespace dtrain::slurm {
namespace {

using batch::cpus_of;
using batch::has_launcher;
using batch::Step;
using batch::words;
using nlohmann::json;

constexpr const char* k_template = "slurm/job.sbatch";

/// Tasks of a job's only step may see one another's GPUs. Several steps each say how many a task
/// has, or Slurm would share them out by node, whatever tasks those have; and then it binds them.
bool sees_node(const JobSpec& job, const std::vector<Step>& steps) {
  const bool only = steps.size() == 1;
  if (!only && job.gpus_visible == "node") {
    throw UsageError("--gpus-visible=node: Slurm binds GPUs to ranks in a job with --ps, --chief "
                     "or --evaluator; drop it");
  }
  return only && steps[0].ranked && steps[0].gpus == 1 && gpu_view(job) != GpuView::rank;
}

/// "--mem-per-cpu", in MiB: Slurm sets none apart for a task.
std::string memory_a_cpu(const JobSpec& job) {
  const auto bytes = batch::memory_of(job);
  return bytes ? fmt::format("{}M", static_cast<std::int64_t>(
                                        std::ceil(*bytes / std::max(cpus_of(job), 1) / 0x1p20)))
               : "";
}

json steps_data(const JobSpec& job, const std::vector<Step>& steps) {
  const int cpus = cpus_of(job);
  const std::string mpi = engine_value(job, "mpi");
  auto list = json::array();
  for (const Step& step : steps) {
    std::vector<std::string> options;
    if (cpus > 0) { // From Slurm 22.05 on srun does not inherit it from sbatch.
      options.push_back(fmt::format("--cpus-per-task={}", cpus));
    }
    if (!mpi.empty()) {
      options.push_back("--mpi=" + mpi);
    }
    if (steps.size() > 1) { // Otherwise the step has the whole allocation.
      options.emplace_back("--exact");
      options.push_back(step.gpus > 0 ? fmt::format("--gpus-per-task={}", step.gpus)
                                      : "--gpus=0"); // With --gres=none it waits on 20.11.
    }
    if (steps.size() > 1 && memory_a_cpu(job).empty()) {
      // Where Slurm allocates memory, too, the first step would get all of the job's memory.
      options.emplace_back("--mem=0");
    }
    list.push_back({{"kind", step.kind},
                    {"first", step.first},
                    {"tasks", step.tasks},
                    {"options", words(options)},
                    // Otherwise srun asks for all of the job's GPUs for each step.
                    {"several", section(steps.size() > 1 && step.gpus > 0, json::object())},
                    {"sees_node", section(sees_node(job, steps), json::object())}});
  }
  return list;
}

/// "1-02:03:04", as Slurm takes a time limit; it counts in minutes, and rounds up.
std::string time_text_of(int milliseconds) {
  constexpr int k_second = 1000;
  const int seconds = (milliseconds + k_second - 1) / k_second;
  return fmt::format("{}-{:02}:{:02}:{:02}", seconds / 86400, seconds / 3600 % 24,
                     seconds / 60 % 60, seconds % 60);
}

/// Two options for the same thing must agree. `other` is the flag that other engines have for it.
std::string either(const JobSpec& job, const char* name, const char* other,
                   const std::string& value) {
  const std::string own = engine_value(job, name);
  if (!own.empty() && !value.empty() && own != value) {
    throw UsageError(
        fmt::format("--{} and {} set the same option to different values; give one", name, other));
  }
  return own.empty() ? value : own;
}

/// MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS[:MINUTES[:SECONDS]], UNLIMITED.
void require_time(const std::string& text) {
  if (text.empty()) { // The usual case: constructing a regular expression takes long.
    return;
  }
  static const std::regex form(R"(\d+(:\d\d?){0,2}|\d+-\d\d?(:\d\d?){0,2}|UNLIMITED|INFINITE)",
                               std::regex::icase);
  if (!std::regex_match(text, form)) {
    throw UsageError(fmt::format("--time={}: invalid time limit: give minutes (90), "
                                 "HOURS:MINUTES:SECONDS (1:30:00), DAYS-HOURS (1-12) or UNLIMITED",
                                 printable(text)));
  }
}

/// Names of signals or their numbers; Slurm's own letters (B:, R:) would miss the ranks.
void require_signal(const std::string& text) {
  if (text.empty()) {
    return;
  }
  static const std::regex form(R"((SIG)?[A-Z]+[0-9]?(@\d{1,5})?|\d{1,2}(@\d{1,5})?)");
  if (!std::regex_match(text, form)) {
    throw UsageError(fmt::format(
        "--signal={}: give a signal and how many seconds before the end it is sent: USR1@60",
        printable(text)));
  }
}

bool saves_checkpoints(const JobSpec& job) {
  return job.runs_bundled_trainer() &&
         std::any_of(job.command.begin(), job.command.end(), [](const std::string& word) {
           return word == "--checkpoint-dir" || word.starts_with("--checkpoint-dir=");
         });
}

std::string signal_of(const JobSpec& job) {
  const std::string own = engine_value(job, "signal");
  require_signal(own);
  return !own.empty() ? own : saves_checkpoints(job) ? "USR1@60" : "";
}

/// Slurm may start the job again: after a node failed, or after a job of higher priority.
bool may_requeue(const JobSpec& job) {
  return job.preemptible || job.max_restarts > 0 || !signal_of(job).empty();
}

/// Throws UsageError for one that the script says itself, or that would take its place.
json sbatch_args(const JobSpec& job) {
  const auto args = Member<std::vector<std::string>>{.key = "sbatchArgs"}(job);
  if (args.empty()) {
    return json::array();
  }
  static const std::set<std::string, std::less<>> taken = {
      "array",         "chdir",     "comment",     "error",     "export",     "gpus",
      "gpus-per-task", "job-name",  "ntasks",      "open-mode", "output",     "parsable",
      "test-only",     "wait",      "wrap",        "requeue",   "no-requeue", "cpus-per-task",
      "mem-per-cpu",   "partition", "qos",         "account",   "constraint", "time",
      "nodelist",      "exclude",   "reservation", "signal",    "gpu-bind"};
  auto list = json::array();
  for (const std::string& arg : args) {
    const auto name = std::string_view(arg).substr(0, arg.find('='));
    if (name.size() < 3 || !name.starts_with("--") || name[2] == '-' ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string_view::npos) {
      throw UsageError(fmt::format("--sbatch-arg={}: give a long sbatch option, its value after =: "
                                   "--sbatch-arg=--mail-type=END",
                                   printable(arg)));
    }
    if (taken.contains(name.substr(2))) {
      throw UsageError(
          fmt::format("--sbatch-arg={}: dtrain sets {} itself: see dtrain submit --help=slurm",
                      printable(arg), name));
    }
    list.push_back({{"arg", arg}});
  }
  return list;
}

/// "0-99%5": a task each, with its own SLURM_ARRAY_TASK_ID.
std::string array_of(const JobSpec& job) {
  std::string text = engine_value(job, "array");
  if (text.empty()) {
    return text;
  }
  static const std::regex form(R"([0-9,:-]+(%[1-9]\d*)?)");
  if (!std::regex_match(text, form) || batch::read_indexes(text).empty()) {
    throw UsageError(fmt::format("--array={}: give indexes or ranges, then % and how many may run "
                                 "at once: 0-99%5, 1,3,7 or 0-30:10",
                                 printable(text)));
  }
  if (has_launcher(job)) {
    throw UsageError(fmt::format("--array: the launcher of a {} has only one host file: drop "
                                 "--array, or run the ranks without a launcher (--mpi=pmix)",
                                 job.type));
  }
  return text;
}

/// A section for each option of sbatch's, empty where the job says nothing of it.
json options_of(const JobSpec& job) {
  const int cpus = cpus_of(job);
  json options;
  const auto set = [&](const char* key, const std::string& value) {
    options[key] = section(!value.empty(), {{"value", value}});
  };
  set("partition", either(job, "partition", "--queue", job.queue));
  set("qos", either(job, "qos", "--priority", job.priority));
  for (const char* name : {"account", "constraint", "exclude", "reservation"}) {
    set(name, engine_value(job, name));
  }
  set("signal", signal_of(job));
  set("array", array_of(job));
  set("cpus_per_task", cpus > 0 ? std::to_string(cpus) : "");
  set("mem_per_cpu", memory_a_cpu(job));
  set("nodelist", fmt::format("{}", fmt::join(job.node_list, ",")));
  require_time(engine_value(job, "time"));
  set("time", either(job, "time", "--running-timeout",
                     job.running_timeout_ms > 0 ? time_text_of(job.running_timeout_ms) : ""));
  options["requeue"] = may_requeue(job);
  options["sbatch_args"] = sbatch_args(job);
  return options;
}

const TemplateRules& template_rules() {
  static const TemplateRules rules = {.kinds = {k_sbatch_kind}};
  return rules;
}

} // namespace

batch::QueueOptions queue_options(const JobSpec& job) {
  std::string array = engine_value(job, "array");
  std::string log(array.empty() ? queue_system().log : "slurm-%a.log");
  return {.may_requeue = may_requeue(job), .array = std::move(array), .log = std::move(log)};
}

std::string render_script(const JobSpec& job, const Templates& templates,
                          const batch::LoginFacts& login) {
  const auto steps = batch::steps_of(job);
  int gpus = 0;
  for (const Step& step : steps) {
    gpus += step.tasks * step.gpus;
  }
  const bool is_uniform = steps.size() == 1;
  json data = batch::script_data(job, login, queue_system());
  data["gpus_per_task"] = section(gpus > 0 && is_uniform, {{"count", steps[0].gpus}});
  data["gpus"] = section(gpus > 0 && !is_uniform, {{"count", gpus}});
  data["steps"] = steps_data(job, has_launcher(job) ? std::vector<Step>() : steps);
  data.update(options_of(job));
  return fill_template(templates, k_template, data, template_rules());
}

} // namespace dtrain::slurm
