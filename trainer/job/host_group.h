// Which ranks share memory.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trainer/job/rendezvous.h"
#include "trainer/job/shared_file.h"

namespace trainer {

struct HostGroup {
  std::vector<int> members;   ///< Ranks that share `file` with this one, itself included, in order.
  std::vector<int> leaders;   ///< The first member of each group of the job, in order.
  std::vector<int> leader_of; ///< For every rank of the job, the first member of its group.
  SharedFile file;            ///< Created by members[0]; empty where the group is this rank alone.
};

/// Collective over the star: groups ranks by `host_identity`, where empty by boot id, and
/// proves each by opening its leader's file, which is `file_size` long. A rank for which that fails
/// is a group of its own.
HostGroup find_host_group(Star& star, const std::string& host_identity,
                          const std::function<std::size_t(int members)>& file_size);

} // namespace trainer
