#include "cli/commands/submit_options.h"

#include "cli/output/job_text.h"
#include "cli/output/output_option.h"
#include "cli/settings/locations.h"
#include "cli/target.h"
#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/job_roles.h"
#include "submit/options/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

namespace dtrain {
namespace {

/// The first word is a job's type; a command without -- is told apart before its flags are.
void check_submit_words(const std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with('-')) {
    return; // An unknown flag, if any.
  }
  if (words[0].empty()) {
    throw UsageError("TYPE: the job type is empty; omit it to run a command on every rank");
  }
  if (const JobType* type = find_job_type(words[0]); type != nullptr && !type->name.empty()) {
    return;
  }
  for (const auto& [other, why] : refused_job_types()) {
    if (words[0] == other) {
      throw UsageError(fmt::format("{}: {}", other, why));
    }
  }
  if (words[0].ends_with(".yaml") || words[0].ends_with(".yml")) {
    throw UsageError(
        fmt::format("'{0}' is not a job type; to submit a job file: dtrain submit -f {0}",
                    printable(words[0])));
  }
  if (const std::size_t equals = words[0].find('=');
      equals != std::string::npos && equals > 0 && words[0].find('/') > equals) {
    throw UsageError(fmt::format("'{0}' is not a job type; give -e once for each variable: -e {0}",
                                 printable(words[0])));
  }
  std::vector<std::string> types;
  for (const JobType& type : job_types()) {
    types.push_back(type.name);
  }
  const auto near = words.size() == 1 ? nearest(words[0], types) : std::nullopt;
  throw UsageError(
      near ? fmt::format("'{}' is not a job type: did you mean {}?", printable(words[0]), *near)
           : fmt::format("'{}' is not a job type; a command goes after --: dtrain "
                         "submit -- {}{}",
                         printable(words[0]), words[0].ends_with(".py") ? "python " : "",
                         shell_words(words)));
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  text << file.rdbuf();
  if (!file || errno != 0) {
    throw UsageError(fmt::format("--file: cannot read '{}': {}", printable(path),
                                 std::strerror(errno == 0 ? EIO : errno)));
  }
  return text.str();
}

/// True where --name is among the flags.
bool names_job(const std::vector<std::string>& args) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::any_of(args.begin(), end, [](const std::string& arg) {
    return arg == "--name" || arg.starts_with("--name=");
  });
}

/// A job file holds paths that mean the same wherever it is read.
void make_absolute(JobSpec& job) {
  const auto absolute = [](std::string& path) {
    if (!path.empty()) {
      path = std::filesystem::absolute(path).lexically_normal().string();
    }
  };
  std::for_each(job.env_files.begin(), job.env_files.end(), absolute);
  std::for_each(job.templates.begin(), job.templates.end(), absolute);
  absolute(job.sync_token_file);
  for (std::string& text : job.config_files) {
    const MountText mount = parse_mount("--config-file", text);
    if (!mount.source.starts_with('/')) {
      std::string source = mount.source;
      absolute(source);
      text = fmt::format("{}:{}{}", source, mount.target, mount.read_only ? ":ro" : "");
    }
  }
  if (job.sync_mode == k_sync_folder) {
    job.sync_source = job.sync_source.empty() ? "." : job.sync_source;
    absolute(job.sync_source);
  }
}

/// Takes TYPE and STRING into the job. Throws UsageError where they are neither.
void apply_words(SubmitOptions& options) {
  if (options.type.empty()) {
    return;
  }
  options.job.type = options.type;
  if (options.command_words.empty()) {
    return;
  }
  if (!options.job.command.empty() && options.has_rest) {
    throw UsageError("two commands, one as a string and one after --; give one of them");
  }
  const std::string command = arena_command(options.command_words);
  options.job.command = {options.shell.empty() ? "sh" : options.shell, "-c", command};
  add_arena_variables(command, options.job);
}

/// Fills in what is still open after file, environment and flags have been read. Image and hosts
/// apply only to engines that take them; others would refuse them, or report that they are not
/// used. Hosts come from the profile of the same engine: hosts for ssh are not nodes of a cluster.
void apply_profile(const Settings& settings, const std::string& profile, JobSpec& job) {
  const Engine& engine = find_engine(job.backend);
  if (job.image.empty() && engine.takes("image")) {
    job.image = profile_value(settings, profile, "image").value_or("");
  }
  const std::string hosts = profile_value(settings, profile, "hosts").value_or("");
  const std::string of = profile_value(settings, profile, "backend").value_or(job.backend);
  if (job.node_list.empty() && !hosts.empty() && of == job.backend && engine.takes("nodeList")) {
    job.node_list = {hosts};
  }
}

} // namespace

CommandTable submit_table(SubmitOptions& options) {
  CommandTable table = {
      .name = "submit",
      .summary = "Run a program, or the bundled trainer, as a job",
      .description =
          "Runs COMMAND as every rank of a job. Without COMMAND, or if it begins with a flag, the "
          "bundled trainer runs. The environment tells each rank its place: RANK, WORLD_SIZE, "
          "MASTER_ADDR, TF_CONFIG and so on.\n\nTYPE says what starts. tfjob: workers, plus --ps, "
          "--chief and --evaluator. pytorchjob: the first worker is the master. mpijob, "
          "horovodjob, etjob, deepspeedjob: a launcher runs COMMAND, which finds the workers in a "
          "host file, and its exit code is the job's. rayjob: the first worker runs COMMAND beside "
          "Ray's head, which the others join. volcanojob: one task per image, scheduled by "
          "Volcano; without COMMAND each runs its image's own program. Command lines written for "
          "Arena run as they are: dtrain-arena(7).",
      .examples = {"# Three workers train the bundled model on Fashion-MNIST",
                   "dtrain submit --workers=3 --wait", "dtrain submit --workers=3 -- --epochs=2",
                   "# A launcher with three slots in its host file",
                   "dtrain submit deepspeedjob --workers=3 -- deepspeed train.py", "# Any program",
                   "dtrain submit --name=mnist --workers=2 -- python train.py --lr 1e-3",
                   "# What would be submitted, and as a file to keep",
                   "dtrain submit --workers=2 --dry-run",
                   "dtrain submit --workers=2 --dry-run -o yaml > job.yaml",
                   "dtrain submit -f job.yaml --workers=4"},
      .options = job_options(options.job, backend_names(), field_notes())};
  std::vector<Option> own = {
      {.flags = "TYPE",
       .target = &options.type,
       .help = "tfjob, pytorchjob, mpijob, horovodjob, etjob, deepspeedjob, rayjob or volcanojob "
               "(default: "
               "every rank runs COMMAND)",
       .complete = Complete::job_type,
       .positional = true},
      {.flags = "STRING",
       .target = &options.command_words,
       .help = "The command as Arena takes it: one string for a shell",
       .positional = true},
      {.flags = "--shell",
       .target = &options.shell,
       .metavar = "SHELL",
       .help = "Shell that reads STRING (default: sh)",
       .group = "Job"},
      {.flags = "-f,--file",
       .target = &options.file,
       .metavar = "FILE",
       .help = "Read the job from a YAML file ('-': stdin); flags override what it says",
       .group = "Job",
       .complete = Complete::file},
      {.flags = "--code",
       .target = &options.code,
       .metavar = "NAME",
       .help = "Send this code: a name from 'dtrain code list'",
       .group = "Code, data and secrets",
       .complete = Complete::code_name},
      {.flags = "--wait",
       .target = &options.wait,
       .help = "Print the logs until the job ends; exit with 100 if it failed"},
      {.flags = "--dry-run",
       .target = &options.dry_run,
       .metavar = "WHERE",
       .help = fmt::format("Print what would be submitted (client, the default), or what the "
                           "engine checks and would store (server; not on {}); with -o yaml, the "
                           "job as a file",
                           engines_that_cannot(Ability::try_plan)),
       .complete = Complete::choices,
       .choices = {"client", "server"},
       .implied = "client"},
      output_option(options.output, {"json", "yaml", "name"}),
      {.flags = "-q,--quiet",
       .target = &options.quiet,
       .help = "Print nothing but errors",
       .group = "Output"},
      profile_option(options.profile),
  };
  for (auto& option : access_options(options.access, true)) {
    own.push_back(std::move(option));
  }
  std::vector<Option> arena = arena_options(options.arena);
  for (auto* more : {&own, &arena}) {
    table.options.insert(table.options.end(), std::make_move_iterator(more->begin()),
                         std::make_move_iterator(more->end()));
  }
  table.common = {"--name",    "--workers",   "--gpus",        "--env",          "--image",
                  "--cpu",     "--memory",    "--working-dir", "--sync-mode",    "--sync-source",
                  "--code",    "--data",      "--data-dir",    "--max-restarts", "--tensorboard",
                  "--logdir",  "--file",      "--wait",        "--dry-run",      "--output",
                  "--backend", "--namespace", "--quiet"};
  table.takes_command = true;
  table.rest = &options.job.command;
  table.check_words = check_submit_words;
  table.notices = &options.notices;
  return table;
}

CommandTable clone_table(SubmitOptions& options) {
  CommandTable table = submit_table(options);
  table.name = "clone";
  table.summary = "Submit a job again, with changes";
  table.description =
      "Submits a job again as it was submitted before, under a new name, with the changes that the "
      "flags make. Flags that may be repeated add to what the job has; a command after -- replaces "
      "its own.";
  table.examples = {"dtrain clone mnist --name=mnist-2",
                    "dtrain clone mnist --workers=8 -e LR=0.1"};
  std::erase_if(table.options, [](const Option& option) {
    return option.positional || option.flags == "-f,--file" || option.flags == "--shell";
  });
  table.options.insert(table.options.begin(), job_argument(&options.cloned));
  table.check_words = nullptr;
  return table;
}

/// Fields that only another engine reads: the job would not run where the flag says.
void refuse_others_flags(const EngineAccess& before, const SubmitOptions& options) {
  const auto reads = [](const Engine& engine, std::string_view name) {
    return std::any_of(engine.access.begin(), engine.access.end(),
                       [&](const AccessFlag& flag) { return flag.name == name; });
  };
  for (const AccessFlag& flag : access_flags()) {
    if (options.access.get(flag.name) == before.get(flag.name) ||
        reads(find_engine(options.job.backend), flag.name)) {
      continue;
    }
    for (const Engine* engine : engines()) {
      if (reads(*engine, flag.name)) {
        throw UsageError(fmt::format("--{}: the {} backend does not use it; add --backend={}",
                                     flag.name, options.job.backend, engine->name));
      }
    }
  }
}

bool parse_submit(const Context& context, SubmitOptions& options, const CommandTable& table,
                  const std::vector<std::string>& args) {
  refuse_misread(args);
  const Arguments arguments(table, args);
  if (arguments.ask_for_help()) {
    return false;
  }
  arguments.apply(ParsePass::all);
  // The first pass found the file and the profile, and has told every mistake.
  const std::string file = options.file;
  const std::string profile = options.profile;
  options = {};
  TargetOptions target;
  target.profile = profile;
  target = resolve_target(context, target);
  options.job.backend = target.backend;
  options.job.namespace_name = target.namespace_name;
  options.access = target.access;
  arguments.apply(ParsePass::environment);
  if (!file.empty()) {
    options.job = read_job_yaml(read_file(file), file == "-" ? "standard input" : file,
                                std::move(options.job));
  }
  const EngineAccess before = options.access;
  arguments.apply(ParsePass::flags);
  refuse_others_flags(before, options);
  if (options.job.name.empty() && names_job(args)) {
    throw UsageError("--name=: the name is empty; drop the flag for a random name");
  }
  options.has_rest = std::find(args.begin(), args.end(), "--") != args.end();
  apply_words(options);
  const auto notices = apply_arena(options.arena, options.job);
  options.notices.insert(options.notices.end(), notices.begin(), notices.end());
  make_absolute(options.job);
  const Settings settings = read_settings(context.config_file);
  apply_profile(settings, profile, options.job);
  apply_locations(settings, profile, options.code, options.job);
  return true;
}

bool parse_clone(const Context& context, SubmitOptions& options, const CommandTable& table,
                 const std::vector<std::string>& args) {
  if (!parse_options(table, args)) {
    return false;
  }
  TargetOptions target;
  target.backend = options.job.backend == JobSpec().backend ? "" : options.job.backend;
  target.namespace_name =
      options.job.namespace_name == JobSpec().namespace_name ? "" : options.job.namespace_name;
  target.profile = options.profile;
  target.access = options.access;
  target = resolve_target(context, target);
  const Target from = open_target(context, target);
  from.status(options.cloned);
  JobSpec job = from.backend->spec(from.job(options.cloned));
  const std::string profile = options.profile;
  job.name.clear();
  options = {};
  options.job = std::move(job);
  options.access = target.access;
  parse_options(table, args, ParsePass::flags);
  const auto notices = apply_arena(options.arena, options.job);
  options.notices.insert(options.notices.end(), notices.begin(), notices.end());
  make_absolute(options.job);
  apply_locations(read_settings(context.config_file), profile, options.code, options.job);
  return true;
}

} // namespace dtrain
