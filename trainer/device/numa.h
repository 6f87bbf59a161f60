// On a machine of several NUMA nodes (sockets), the CPUs that are near a PCI device: copies to it
// and from it by the others go through the link between sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

struct NumaNode {
  int number = 0;
  std::vector<int> cpus; ///< Ascending.
};

/// "0-3,8" → 0, 1, 2, 3, 8; empty: it is no such list, or an empty one.
std::vector<int> parse_cpu_list(std::string_view text);

/// The node of the PCI device "0000:1B:00.0"; none: the machine has one node, or does not say.
/// `sysfs`: where the kernel tells.
std::optional<NumaNode> numa_node_of(const std::string& bus_id, const std::string& sysfs = "/sys");

/// Has the calling thread, and those that it starts from here on, run on the node's CPUs alone: on
/// those of them that it may use already, so that memory that they touch first is the node's too.
/// False: it may use none of them, and runs where it did.
bool bind_to(const NumaNode& node);

} // namespace trainer
