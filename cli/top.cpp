#include "cli/commands.h"
#include "cli/output/data.h"
#include "cli/output/table.h"
#include "cli/output_option.h"
#include "cli/target.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

constexpr double k_mebibyte = 1024.0 * 1024.0;
constexpr double k_gibibyte = 1024.0 * k_mebibyte;

struct TopOptions {
  std::string name;
  std::string output;
  TargetOptions target;
};

CommandTable top_node_table(TopOptions& options) {
  CommandTable table = {
      .name = "top node",
      .summary = "Show the nodes and their GPUs",
      .description = "Shows each node with the GPUs that jobs may have, those that jobs asked for, "
                     "and those that are free; and its CPUs and memory in use where the engine "
                     "says them.",
      .examples = {"dtrain top node", "dtrain top node -b kubernetes"},
      .options = {output_option(options.output, {"json", "yaml"})}};
  add_target(table, options.target);
  return table;
}

std::string memory_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < k_gibibyte ? fmt::format("{:.0f}Mi", size / k_mebibyte)
                           : fmt::format("{:.1f}Gi", size / k_gibibyte);
}

int run_top_node(Context& context, const TopOptions& options) {
  const auto nodes = open_target(context, options.target).backend->nodes();
  if (const auto format = data_format(options.output)) {
    context.out.write(nodes_data(nodes, *format));
    return 0;
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
  table.print(context.out);
  context.out.write(fmt::format("Requested/Total GPUs of nodes in cluster: {}/{}{}\n", requested,
                                total,
                                total == 0 ? "" : fmt::format(" ({}%)", 100 * requested / total)));
  return 0;
}

CommandTable top_job_table(TopOptions& options) {
  CommandTable table = {
      .name = "top job",
      .summary = "Show what a job's instances use",
      .description = "Shows the CPUs and memory that each running instance uses, "
                     "all its processes together, and the GPUs it asked for.",
      .examples = {"dtrain top job mnist"},
      .options = {job_argument(options.name), output_option(options.output, {"json", "yaml"})}};
  add_target(table, options.target);
  return table;
}

int run_top_job(Context& context, const TopOptions& options) {
  const Target target = open_target(context, options.target);
  target.status(options.name); // Throws with a suggestion.
  const auto instances = target.backend->usage(target.job(options.name));
  if (const auto format = data_format(options.output)) {
    context.out.write(usage_data(instances, *format));
    return 0;
  }
  if (instances.empty()) {
    context.note(fmt::format("No instance of job '{}' is running.", options.name));
    return 0;
  }
  Table table({"NAME", "CPU", "MEMORY", "GPU(Requested)", "NODE"});
  for (const auto& each : instances) {
    table.add({{each.instance},
               {fmt::format("{:.2f}", each.cpus)},
               {memory_text(each.memory)},
               {fmt::to_string(each.gpus)},
               {each.node}});
  }
  table.print(context.out);
  return 0;
}

} // namespace

Invocation top_job_command() { return bind(top_job_table, run_top_job); }
Invocation top_node_command() { return bind(top_node_table, run_top_node); }

} // namespace dtrain
