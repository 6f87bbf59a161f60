// Slurm's nodes, as `sinfo --Node` has them.
#pragma once

#include "backends/job_status.h"

#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// For `sinfo --noheader --Node --Format=`.
inline constexpr const char* k_node_format = "NodeList:128,StateLong:32,NodeAddr:128,CPUsState:64,"
                                             "Memory:32,AllocMem:32,Gres:256,GresUsed:256";

/// A node is listed for each of its partitions, and given once.
std::vector<NodeStatus> read_nodes(std::string_view text);

} // namespace dtrain::slurm
