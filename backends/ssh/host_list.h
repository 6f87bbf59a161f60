// The hosts of a job, as --hosts, --hostfile and WCOLL name them, and which of them it takes.
//
//   --hosts     h1,h2:4,gpu[01-16],me@h9        a name as ssh takes it, or several, in pdsh's
//                                               syntax; :N says how many ranks it has room for
//               ^FILE                           those of a file (pdsh -w ^FILE)
//               genders:ATTR, genders:ATTR:4    those that nodeattr says have the attribute (pdsh
//               -g)
//   --hostfile  the same a line, or in DeepSpeed's form ("h1 slots=4"), or Open MPI's ("h1 slots=4
//               max_slots=8"); # begins a comment, but "#include FILE" is pdsh's, as in a WCOLL
//               file
//   --exclude-hosts    h[2-3],h9                pdsh -x
//   --include, --exclude    h1:0,1@h2           DeepSpeed's: NAME, or some of its GPUs
#pragma once

#include "backends/supervised/gang/gang_plan.h"
#include "submit/options/environment.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

inline constexpr EnvironmentVariable k_wcoll = {
    "WCOLL", "Host file of ssh jobs without --hosts and --hostfile, in any format that --hostfile "
             "takes; pdsh reads it too"};

/// Throws UsageError naming the flag and the fault: an invalid host name (characters special to
/// shells are refused), a host listed twice, slots that are not a number.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// The same for the text of a host file; errors name `file` ("--hostfile=hosts.txt") and the line.
std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file);
/// The same for a file; `from`: "--hostfile" or "WCOLL".
std::vector<HostSlots> read_hostfile(std::string_view from, const std::string& path);

/// The options that choose a job's hosts; each is empty if not given.
struct HostChoice {
  std::string without = {}; ///< --exclude-hosts
  std::string include = {};
  std::string exclude = {};
};

/// Applies --include and --exclude: returns the remaining hosts in their order, with the chosen
/// GPUs; a host's slots are limited to those GPUs. If `hosts` is empty, returns those that
/// --include names. A name also matches "me
/// name". Throws UsageError if --include or --exclude name a host that is not in the list, or if
/// none is left.
std::vector<HostSlots> choose_hosts(std::vector<HostSlots> hosts, const HostChoice& choice);

/// The host of each of `ranks` ranks, those of a host side by side. Hosts that say their slots are
/// filled one after another (one that does not say has one); where none says, all get about the
/// same. Throws UsageError where there are too few slots.
std::vector<std::string> place_ranks(const std::vector<HostSlots>& hosts, int ranks);

} // namespace dtrain::ssh
