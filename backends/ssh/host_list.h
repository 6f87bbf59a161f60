// The hosts of a job, as --hosts and --hostfile name them.
//
//   --hosts     h1,h2:4,gpu[01-16],me@h9        a name as ssh takes it; :N says how many ranks it
//                                               has room for
//   --hostfile  a host a line, in DeepSpeed's form ("h1 slots=4"), Open MPI's ("h1 slots=4
//               max_slots=8", "h1:4"), or alone; # begins a comment
#pragma once

#include "backends/backend.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

/// Throws UsageError naming the flag and what is wrong: a name that no host has (shells' characters
/// are refused), one that is listed twice, slots that are no number.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// The same of a host file's text; errors name `file` and the line.
std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file);

/// The host of each of `ranks` ranks, those of a host side by side. Hosts that say their slots are
/// filled one after another (one that does not say has one); where none says, all get about the
/// same. Throws UsageError where there are too few slots.
std::vector<std::string> place_ranks(const std::vector<HostSlots>& hosts, int ranks);

} // namespace dtrain::ssh
