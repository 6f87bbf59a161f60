#include "backends/slurm/engine.h"

#include "backends/slurm/slurm_backend.h"
#include "backends/slurm/system.h"

namespace dtrain::slurm {
namespace {

std::vector<FieldUse> field_uses() {
  return field_table(
      with_usual_fields({"gpusVisible", "cpu", "memory", "workerCpu", "workerMemory", "queue",
                         "nodeList", "preemptible", "configFiles", "checkGpus"}),
      {
          {"runs programs that are installed on the nodes, not images",
           {"image", "psImage", "workerImage", "syncImage", "tensorboardImage"}},
          {"gives ranks the node's /dev/shm", {"shareMemory"}},
          {"runs ranks directly on the nodes", {"hostIPC", "hostNetwork", "hostPID", "rdma"}},
          {"starts all instances at once", {"minAvailable"}},
          {"waits between TERM and KILL as Slurm's KillWait says", {"gracePeriod"}},
      },
      {
          {"mounts nothing: give a folder that the nodes share, by --data-dir=/FOLDER or dtrain "
           "data add NAME --path=/FOLDER",
           {"data"}},
          {"chooses nodes by --constraint, --node-list and --exclude",
           {"selectors", "tolerations"}},
          {"places ranks by Slurm's own rules (see --sbatch-arg=--spread-job, "
           "--sbatch-arg=--nodes=N)",
           {"topologySpread", "binpack"}},
          {"chooses GPU types and other devices by --sbatch-arg=--gres=TYPE:N",
           {"gpuType", "devices"}},
          {"limits workers to what --worker-cpu and --worker-memory reserve",
           {"workerCpuLimit", "workerMemoryLimit"}},
          {"cannot resize a running job", {"minWorkers", "maxWorkers"}},
          {"starts all roles at once", {"roleSequence"}},
          {"runs no TensorBoard beside a job", {"tensorboard", "logdir"}},
          {"does not limit the size of logs", {"logLimit"}},
          {"keeps a job until you delete it", {"ttlAfterFinished"}},
          {"runs no images", {"taskImages", "taskReplicas", "taskName"}},
      });
}

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = queue_system().engine,
      .make = [](const EngineAccess& access) -> std::unique_ptr<Backend> {
        return std::make_unique<SlurmBackend>(access.get("login-host"));
      },
      .fields = field_uses(),
      .notes = {{"dataDirs",
                 "mounts nothing; the folder must exist on every node, at the same path"}},
      .cannot = {{Ability::scale,
                  "does not resize running jobs; resubmit the job: dtrain clone NAME --workers=N "
                  "(a trainer with --resume continues from its last checkpoint)"}},
      .access = {{.name = "login-host",
                  .metavar = "HOST",
                  .help = "Run Slurm's commands on HOST, over ssh",
                  .env = "DTRAIN_LOGIN_HOST",
                  .in_profile = true}},
      .own =
          {
              text_field("--partition", "NAME",
                         "Partition of nodes (as --queue); several, separated by commas"),
              text_field("--qos", "NAME", "Quality of service (as --priority)"),
              text_field("--account", "NAME", "Account that the job is charged to"),
              text_field("--constraint", "FEATURES",
                         "Features that the nodes must have (a100&nvlink)"),
              text_field("--time", "TIME",
                         "Time limit in Slurm's format: MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS "
                         "or UNLIMITED (--running-timeout takes 90m)"),
              text_field("--exclude", "NODES", "Nodes to skip (node[3-5])"),
              text_field("--reservation", "NAME", "Reservation to run the job in"),
              text_field(
                  "--signal", "SIGNAL[@SECONDS]",
                  "Send SIGNAL to every rank SECONDS before the time limit or preemption; if a "
                  "rank then exits with code 75, the job is requeued (default for the bundled "
                  "trainer with --checkpoint-dir: USR1@60)"),
              text_field("--array", "INDEXES[%MOST]",
                         "Run the job once for each index (0-99), at most MOST of them at once; "
                         "each run finds its index in SLURM_ARRAY_TASK_ID"),
              text_field("--mpi", "TYPE",
                         "How srun starts MPI programs: pmix, pmi2 (srun --mpi=list)"),
              own_field(Member<std::vector<std::string>>{.key = "sbatchArgs"}, "--sbatch-arg",
                        "--OPTION[=VALUE]",
                        "Any other sbatch option, passed unchanged (--sbatch-arg=--mail-type=END); "
                        "may be repeated"),
          },
      .records = "slurm",
  };
  return all;
}

} // namespace dtrain::slurm
