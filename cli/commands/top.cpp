#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/job_filter.h"
#include "cli/output/data.h"
#include "cli/output/output_option.h"
#include "cli/output/redraw.h"
#include "cli/output/table.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr double k_mebibyte = 1024.0 * 1024.0;
constexpr double k_gibibyte = 1024.0 * k_mebibyte;

struct TopOptions {
  std::string name;
  std::vector<std::string> nodes; ///< Empty: all.
  bool all_namespaces = false;
  bool details = false;               ///< Said, and always so.
  std::vector<std::string> instances; ///< Empty: all.
  std::string trainer;                ///< Trainer type of the jobs; empty: any.
  bool refresh = false;
  std::string output;
  TargetOptions target;
};

CommandTable top_node_table(TopOptions& options) {
  CommandTable table = {
      .name = "top node",
      .summary = "Show the nodes and their GPUs",
      .description = "Shows the allocatable, requested and free GPUs of each node, and its CPUs "
                     "and memory in use if the engine reports them.",
      .examples = {"dtrain top node", "dtrain top node --profile=cluster"},
      .options = {{.flags = "NODE",
                   .target = &options.nodes,
                   .help = "A node (default: all)",
                   .positional = true},
                  {.flags = "-d,--details",
                   .target = &options.details,
                   .help = "For Arena's command lines: details are always shown",
                   .hidden = true},
                  {.flags = "--metric",
                   .target = &options.details,
                   .help = "For Arena's command lines: all metrics are always shown",
                   .hidden = true},
                  {.flags = "-r,--refresh",
                   .target = &options.refresh,
                   .help = "Keep showing it until Ctrl-C",
                   .group = "Output",
                   .aliases = {"-w", "--watch"}},
                  output_option(options.output, {"json", "yaml"})}};
  options.target.needs = Ability::top_node;
  add_target(table, options.target, true);
  return table;
}

std::string memory_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < k_gibibyte ? fmt::format("{:.0f}Mi", size / k_mebibyte)
                           : fmt::format("{:.1f}Gi", size / k_gibibyte);
}

void print_nodes(Context& context, Stream& out, const Target& target, const TopOptions& options) {
  auto nodes = target.backend->nodes();
  for (const std::string& wanted : options.nodes) {
    if (std::none_of(nodes.begin(), nodes.end(),
                     [&](const NodeStatus& node) { return node.name == wanted; })) {
      throw NotFound(fmt::format("no node '{}'; 'dtrain top node' shows all", printable(wanted)));
    }
  }
  std::erase_if(nodes, [&](const NodeStatus& node) {
    return !options.nodes.empty() &&
           std::find(options.nodes.begin(), options.nodes.end(), node.name) == options.nodes.end();
  });
  if (const auto format = data_format(options.output)) {
    out.write(nodes_data(nodes, *format));
    return;
  }
  std::vector<std::string> headers = {"NAME",       "IPADDRESS",      "ROLE",     "STATUS",
                                      "GPU(Total)", "GPU(Requested)", "GPU(Free)"};
  const bool measured = !nodes.empty() && nodes.front().cpus > 0;
  if (measured) {
    headers.insert(headers.end(), {"CPU(Used/Total)", "MEMORY(Used/Total)"});
  }
  Table table(headers);
  int total = 0;
  int requested = 0;
  for (const auto& node : nodes) {
    std::vector<Cell> row = {{node.name},
                             {node.address},
                             {node.role.empty() ? "<none>" : node.role},
                             {node.status, node.status == "Ready" ? Style::plain : Style::red},
                             {fmt::format("{}", node.gpus)},
                             {fmt::format("{}", node.gpus_requested)},
                             {fmt::format("{}", node.gpus_free())}};
    if (measured) {
      row.push_back({fmt::format("{:.1f}/{:g}", node.cpus_used, node.cpus)});
      row.push_back(
          {fmt::format("{}/{}", memory_text(node.memory_used), memory_text(node.memory))});
    }
    table.add(std::move(row));
    total += node.gpus;
    requested += node.gpus_requested;
  }
  table.print(out);
  if (!nodes.empty() && !nodes.front().unseen.empty()) {
    context.note(fmt::format("{}: {}", context.program, nodes.front().unseen));
  }
  out.write(fmt::format("Requested/Total GPUs of nodes in cluster: {}/{}{}\n", requested, total,
                        total == 0 ? "" : fmt::format(" ({}%)", 100 * requested / total)));
}

int run_top_node(Context& context, const TopOptions& options) {
  const Target target = open_target(context, options.target);
  if (options.refresh) {
    const DetachOnInterrupt detach("dtrain top node: stopped watching");
    redraw_forever(context.out,
                   [&](Stream& picture) { print_nodes(context, picture, target, options); });
  }
  print_nodes(context, context.out, target, options);
  return 0;
}

CommandTable top_job_table(TopOptions& options) {
  CommandTable table = {
      .name = "top job",
      .summary = "Show what jobs use",
      .description =
          "Shows the CPUs and memory that each running instance uses, with all its processes, and "
          "the GPUs that it requested; of one job, or of all running jobs in the namespace.",
      .examples = {"dtrain top job", "dtrain top job mnist", "# One worker, until Ctrl-C",
                   "dtrain top job mnist -i worker-1 -r"},
      .options = {job_argument(&options.name, "The job (default: all that run)", false),
                  {.flags = "-i,--instance",
                   .target = &options.instances,
                   .metavar = "NAME",
                   .help = "Only this instance of the job; may be repeated",
                   .complete = Complete::instance},
                  {.flags = "-r,--refresh",
                   .target = &options.refresh,
                   .help = "Keep showing it until Ctrl-C",
                   .group = "Output",
                   .aliases = {"-w", "--watch"}},
                  type_option(options.trainer),
                  {.flags = "-A,--all-namespaces",
                   .target = &options.all_namespaces,
                   .help = "Jobs in all namespaces",
                   .group = "Where"},
                  output_option(options.output, {"json", "yaml"})}};
  options.target.needs = Ability::top_job;
  add_target(table, options.target);
  return table;
}

/// Usage of the named job, or of all running jobs.
std::vector<JobUsage> usage_of(const Target& target, const TopOptions& options) {
  if (!options.name.empty()) {
    const JobStatus job = target.status(options.name); // Throws with a suggestion.
    std::vector<InstanceUsage> usage = target.backend->usage(target.job(options.name));
    std::vector<std::string> wanted;
    for (const std::string& instance : options.instances) {
      wanted.push_back(instance_named(job, instance));
    }
    std::erase_if(usage, [&](const InstanceUsage& each) {
      return !wanted.empty() &&
             std::find(wanted.begin(), wanted.end(), each.instance) == wanted.end();
    });
    return {{options.name, std::move(usage)}};
  }
  std::vector<JobUsage> all;
  auto jobs = target.backend->list({options.all_namespaces ? "" : target.namespace_name});
  filter_jobs(jobs, {}, {}, options.trainer);
  for (const auto& job : jobs) {
    if (job.phase != Phase::running) {
      continue;
    }
    try {
      all.push_back({job.name, target.backend->usage({job.namespace_name, job.name})});
    } catch (const NotFound&) { // Deleted in the meantime.
      continue;
    }
  }
  return all;
}

void print_usage(Context& context, Stream& out, const Target& target, const TopOptions& options) {
  const auto jobs = usage_of(target, options);
  if (const auto format = data_format(options.output)) {
    out.write(usage_data(jobs, *format));
    return;
  }
  Table table({"JOB", "INSTANCE", "CPU", "MEMORY", "GPU(Requested)", "NODE"});
  bool is_empty = true;
  for (const auto& job : jobs) {
    for (const auto& each : job.instances) {
      is_empty = false;
      table.add({{job.name},
                 {each.instance},
                 {fmt::format("{:.2f}", each.cpus)},
                 {memory_text(each.memory)},
                 {fmt::to_string(each.gpus)},
                 {each.node}});
    }
  }
  if (!is_empty) {
    table.print(out);
    return;
  }
  const std::string none = options.name.empty()
                               ? "No job is running."
                               : fmt::format("No instance of job '{}' is running.", options.name);
  if (options.refresh) {
    out.write(none + "\n");
  } else {
    context.note(none);
  }
}

int run_top_job(Context& context, const TopOptions& options) {
  if (!options.instances.empty() && options.name.empty()) {
    throw UsageError("--instance: name the job too: dtrain top job NAME --instance=worker-0");
  }
  const Target target = open_target(context, options.target);
  if (options.refresh) {
    const DetachOnInterrupt detach("dtrain top job: stopped watching; the jobs go on");
    redraw_forever(context.out,
                   [&](Stream& picture) { print_usage(context, picture, target, options); });
  }
  print_usage(context, context.out, target, options);
  return 0;
}

} // namespace

Invocation top_job_command() { return bind(top_job_table, run_top_job); }
Invocation top_node_command() { return bind(top_node_table, run_top_node); }

} // namespace dtrain
