#include "cli/commands.h"
#include "cli/output/data.h"
#include "cli/output/table.h"
#include "cli/output_option.h"
#include "cli/target.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct TopOptions {
  std::string output;
  TargetOptions target;
};

CommandTable top_node_table(TopOptions& options) {
  CommandTable table = {
      .name = "top node",
      .summary = "Show the cluster's nodes and their GPUs",
      .description = "Shows each node with the GPUs that jobs may have, those that running and "
                     "starting Pods asked for, and those that are free.",
      .examples = {"dtrain top node -b kubernetes"},
      .options = {output_option(options.output, {"json", "yaml"})}};
  for (auto& option : target_options(options.target)) {
    table.options.push_back(std::move(option));
  }
  return table;
}

int run_top_node(Context& context, const TopOptions& options) {
  const auto nodes = open_target(context, options.target).backend->nodes();
  if (const auto format = data_format(options.output)) {
    context.out.write(nodes_data(nodes, *format));
    return 0;
  }
  Table table({"NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Requested)", "GPU(Free)"});
  int total = 0;
  int requested = 0;
  for (const auto& node : nodes) {
    table.add({{node.name},
               {node.address},
               {node.role.empty() ? "<none>" : node.role},
               {node.status, node.status == "Ready" ? Style::plain : Style::red},
               {fmt::format("{}", node.gpus)},
               {fmt::format("{}", node.gpus_requested)},
               {fmt::format("{}", node.gpus_free())}});
    total += node.gpus;
    requested += node.gpus_requested;
  }
  table.print(context.out);
  context.out.write(fmt::format("Requested/Total GPUs of nodes in cluster: {}/{}{}\n", requested,
                                total,
                                total == 0 ? "" : fmt::format(" ({}%)", 100 * requested / total)));
  return 0;
}

} // namespace

Invocation top_node_command() { return bind(top_node_table, run_top_node); }

} // namespace dtrain
