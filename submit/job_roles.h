// The roles of a job, from its type and counts, in the order of their instances.
//
//   tfjob, none     chief (with --chief), workers, ps, evaluator (with --evaluator)
//   pytorchjob      a master and workers - 1 workers
//   rayjob          workers: Ray's head runs beside the first, which runs the command
//   volcanojob      tasks, one per image, with as many instances each; all are ranks
//   mpijob, horovodjob, etjob, deepspeedjob
//                   a launcher, which runs the command, and workers, which hold the slots of its
//                   host file and run what the launcher starts there
//
// Ranks are numbered through the ranked roles in this order, so the first instance is rank 0, or
// the launcher. Parameter servers, evaluators and launchers have no rank.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

inline constexpr const char* k_chief = "chief";
inline constexpr const char* k_master = "master";
inline constexpr const char* k_worker = "worker";
inline constexpr const char* k_ps = "ps";
inline constexpr const char* k_evaluator = "evaluator";
inline constexpr const char* k_launcher = "launcher";
/// Runs beside the job and is not one of its roles.
inline constexpr const char* k_tensorboard = "tensorboard";

struct JobType {
  std::string name;    ///< "tfjob"
  std::string trainer; ///< As shown by `list`: "TFJOB".
  std::string alias;   ///< Arena's short form: "tf"; empty: none.
  bool has_launcher = false;
  bool has_master = false;
  bool has_ray = false;
  bool has_tasks = false;
};

/// The types that submit takes; the empty name is the bundled trainer's or a plain command's.
const std::vector<JobType>& job_types();

/// Empty where `word` is the name or alias of none.
const JobType* find_job_type(std::string_view word);

/// Arena's types that are not supported, each with the reason.
const std::vector<std::pair<std::string_view, std::string_view>>& refused_job_types();

/// A role as it is started.
struct Role {
  std::string name; ///< k_worker …
  int replicas = 1;
  int gpus = 0;             ///< A replica.
  bool ranked = true;       ///< Whether its replicas are ranks of the gang.
  bool runs_command = true; ///< False for workers that wait for their launcher.
};

/// The roles of a resolved job.
std::vector<Role> job_roles(const JobSpec& job);

/// Is a role whose instances are ranks: a task of any name, but none of those that serve or watch.
bool is_ranked_role(std::string_view role);

/// Processes that a launcher's host file has room for: workers, each with its GPUs.
int slots_per_worker(const JobSpec& job);

/// The names of job_roles() in the order in which they are to be started (--role-sequence).
/// Throws UsageError where that names a role twice, or none.
std::vector<std::string> role_start_order(const JobSpec& job);

} // namespace dtrain
