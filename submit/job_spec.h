// A job: the value that the command line or a YAML file describes.
//
// A JobSpec is plain data. It is parsed (cli/ or read_job_yaml), resolved (defaults filled in,
// every field validated) and then rendered by a backend; nothing here has a side effect.
#pragma once

#include "submit/named_values.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// job_roles() turns these into roles and resources (submit/job_roles.h).
struct JobSpec {
  std::string type; ///< "tfjob", "etjob" …; empty: the bundled trainer or a plain command.
  std::string name; ///< DNS label; resolve() makes one up where it is empty.
  std::string namespace_name = "default";
  std::string backend;       ///< Empty: the default one.
  std::string priority;      ///< Priority class; empty: none.
  int workers = 1;           ///< Ranks of the gang, 1 … k_max_workers.
  int gpus = 0;              ///< Devices a worker.
  bool require_gpus = false; ///< Too few GPUs is an error, not a warning.
  std::string check_gpus;    ///< "on", "measure", "off"; empty: on.
  std::string gpus_visible;  ///< "node", "rank"; empty: as the job is (submit/gpu_view.h).
  std::vector<std::string>
      command; ///< argv, byte-exact. Empty, or first word a flag: the bundled trainer.
  std::vector<std::string> env; ///< KEY=VALUE in the order given, byte-exact.
  std::string working_dir;      ///< Where ranks start; empty: where submit was called.
  int max_restarts = 0;         ///< Restarts of the whole gang after a failure.
  int grace_period_ms = 1000;   ///< Between TERM and KILL when a gang is ended.

  // Roles besides the workers.
  int ps = 0;                 ///< Parameter servers.
  int ps_gpus = 0;            ///< Devices a parameter server.
  bool chief = false;         ///< A chief besides the workers.
  bool evaluator = false;     ///< A process outside the gang that scores checkpoints.
  std::string nproc_per_node; ///< Processes that torchrun starts in each worker: N, auto, gpu, cpu.
  std::string role_sequence;  ///< "Worker,PS": the order in which roles are started.
  std::string success_policy; ///< ChiefWorker: the chief's success is the job's. Empty: all's.
  std::string worker_cpu;     ///< For each worker; empty: the value of the job.
  std::string worker_memory;

  // For a volcanojob.
  std::string task_name = "task";       ///< Its tasks are NAME-0, NAME-1 …
  std::vector<std::string> task_images; ///< One per task.
  int task_replicas = 1;                ///< Instances of each task.

  // When it starts and ends.
  int running_timeout_ms = 0;     ///< The job is ended after this long; 0: never.
  std::string log_limit;          ///< Largest log of an instance: "1Gi"; empty: no limit.
  int ttl_after_finished_ms = -1; ///< The engine forgets it so long after; -1: never.
  std::string clean_task_policy;  ///< Running (default), All or None: what ends with the ranks.
  int min_workers = 0;            ///< Bounds of `scale`; 0: none.
  int max_workers = 0;

  // Code, secrets and TensorBoard.
  std::string sync_mode;   ///< One of k_sync_…; empty: no code is uploaded.
  std::string sync_source; ///< URL[@REF], or a folder.
  std::string sync_user;   ///< For git; the token comes from DTRAIN_GIT_TOKEN or the file below.
  std::string sync_token_file;
  std::vector<std::string> config_files; ///< /HERE/FILE:/THERE/FILE
  std::vector<std::string> env_files;    ///< Files of KEY=VALUE lines that nobody prints.
  std::vector<std::string> secrets;      ///< Names of such, kept by dtrain or the cluster.
  bool tensorboard = false;              ///< Runs beside the job.
  std::string logdir = "/training_logs"; ///< The folder that TensorBoard shows.

  // The template of its plan.
  std::vector<std::string> templates;       ///< Files and folders, over the built-in ones.
  std::vector<std::string> template_values; ///< KEY=VALUE, variables of theirs.

  std::vector<std::string> labels; ///< KEY=VALUE, for people and selectors.

  // In a cluster of containers.
  std::string image;                  ///< The image of the ranks' containers.
  std::string cpu;                    ///< For each worker: "4", "500m".
  std::string memory;                 ///< "16Gi"
  std::vector<std::string> data;      ///< CLAIM:/PATH, persistent volume claims to mount.
  std::vector<std::string> data_dirs; ///< /NODE/PATH:/PATH, folders of the node to mount.
  std::string queue;                  ///< The queue that admits the job; empty: none.
  std::vector<std::string> node_list; ///< Nodes that may be used.
  bool gang = false;                  ///< Whether all workers start, or none.
  bool rdma = false;                  ///< InfiniBand or RoCE devices.
  bool preemptible = false;           ///< May be ended for jobs of higher priority.
  bool host_ipc = false;
  bool host_network = false;
  bool host_pid = false;

  NamedValues of_engines; ///< Keyed as in engine_fields() (submit/fields/job_fields.h).

  bool operator==(const JobSpec&) const = default;

  /// True where the ranks run dtrain-trainer.
  bool runs_bundled_trainer() const {
    return command.empty() ? task_images.empty() : command[0].starts_with('-');
  }

  /// Neither: each task's container runs what its image was made to run.
  bool runs_images_own_program() const { return command.empty() && !task_images.empty(); }
};

inline constexpr int k_max_workers = 4096;

/// Values of sync_mode.
inline constexpr const char* k_sync_git = "git";
inline constexpr const char* k_sync_folder = "local";

/// Names within a job: "worker-0", the field's form for role and index.
std::string instance_name(std::string_view role, int index);

/// SOURCE and PATH of "SOURCE:/PATH[:ro]"; of "/PATH" both.
struct MountText {
  std::string source;
  std::string target;
  bool read_only = false;
};

/// Throws UsageError naming the flag where the text is neither.
MountText parse_mount(const std::string& flag, const std::string& text);

/// Throws UsageError naming the flag where `text` is no DNS label (RFC 1123), as names of jobs and
/// namespaces are.
void require_dns_label(std::string_view flag, const std::string& text);

/// The same for KEY=VALUE, or KEY alone for a selector without a value, that is not a valid label.
void require_label(std::string_view flag, const std::string& text);

/// Fills in what was left open (name, namespace) and validates the rest; if an environment variable
/// is given twice, the later value counts. Throws UsageError naming the flag and what to do.
JobSpec resolve(JobSpec job);

/// A job file (YAML, or JSON, which is YAML) over `base`: a key that the file has replaces the
/// field. `origin` is the file's name for messages.
/// Throws UsageError with line and column on bad syntax, an unknown key, a key given twice, or a
/// value of the wrong type.
JobSpec read_job_yaml(const std::string& text, const std::string& origin, JobSpec base = {});

/// The job as YAML that read_job_yaml reads back to an equal value, bytes that are not UTF-8
/// included (as !!binary).
std::string write_job_yaml(const JobSpec& job);

} // namespace dtrain
