// The supervisor's entry point: an engine's helper, `dtrain supervise JOB STAGED FD`, started by
// SupervisedBackend::submit and hidden from --help. Returns the process's exit status.
//
// Two processes look after a job, so that either may be killed and nothing stays behind:
//
//   guard        reaps what the supervisor leaves when it dies, ends it, and says so in the record
//    └ supervisor  runs the gang (supervised/gang/gang.h); ends it where the guard dies
//        └ ranks     die with the supervisor (PR_SET_PDEATHSIG)
//
// Supervisor and ranks are in a control group of the job's own where the machine lets us have one:
// should both of those be killed at once, what daemons are left can still be ended.
//
// Both are child subreapers: a rank's daemons cannot get away. Signals to the guard are for the
// gang: SIGTERM ends the job, SIGTSTP suspends it, SIGHUP has its plan read again.
//
// A suspended job has no process; what starts it again is the same entry point, given the job's own
// folder as the staged one, and the environment that its ranks had.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <sys/resource.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// What the channel of a supervisor is made from.
struct SupervisedJob {
  rlimit file_limit; ///< Limit of open files for ranks; the supervisor raises its own.
  std::string uid;
  std::string cgroup; ///< May be empty.
  int folder;         ///< The job's, while the channel is made.
  bool is_new;        ///< Nothing of it has ever run.
};

using MakeChannel = std::unique_ptr<Channel> (*)(const SupervisedJob&);

/// `args`: the folder that the job is to have, the one that it has, and the descriptor of a socket
/// on which one message gives the result: k_taken and where the ranks are, k_name_in_use,
/// k_devices_taken or an error's text. An accepted new job starts when a byte comes back, and is
/// removed if none does: the submitter was interrupted before hearing of it.
int supervise_main(const std::vector<std::string>& args, MakeChannel make_channel);

inline constexpr std::string_view k_taken = "taken: ";
inline constexpr const char* k_name_in_use = "name in use";
inline constexpr const char* k_devices_taken = "devices taken";

} // namespace dtrain
