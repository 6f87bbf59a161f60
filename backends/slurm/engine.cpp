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
          {"runs the cluster's own programs",
           {"image", "psImage", "workerImage", "syncImage", "tensorboardImage"}},
          {"gives ranks their node's own /dev/shm", {"shareMemory"}},
          {"runs ranks on their nodes themselves", {"hostIPC", "hostNetwork", "hostPID", "rdma"}},
          {"starts all instances at once", {"minAvailable", "startingTimeout"}},
          {"has its own time between TERM and KILL (KillWait)", {"gracePeriod"}},
      },
      {
          {"shows ranks their nodes' own folders: name one by --data-dir=/FOLDER, or dtrain data "
           "add NAME --path=/FOLDER",
           {"data"}},
          {"chooses nodes by --constraint, --node-list and --exclude",
           {"selectors", "tolerations"}},
          {"places ranks as its site has it (--sbatch-arg=--spread-job, --sbatch-arg=--nodes=N)",
           {"topologySpread", "binpack"}},
          {"takes types of GPUs and other devices by --sbatch-arg=--gres=TYPE:N",
           {"gpuType", "devices"}},
          {"holds workers to what --worker-cpu and --worker-memory reserve",
           {"workerCpuLimit", "workerMemoryLimit"}},
          {"gives a job its nodes once, so that no worker comes or goes",
           {"minWorkers", "maxWorkers"}},
          {"starts all roles at once", {"roleSequence"}},
          {"runs no TensorBoard beside a job", {"tensorboard", "logdir"}},
          {"keeps whole logs", {"logLimit"}},
          {"keeps a job until it is deleted", {"ttlAfterFinished"}},
          {"runs no images' own programs", {"taskImages", "taskReplicas", "taskName"}},
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
      .notes = {{"dataDirs", "asks that every node has it, at its own path"}},
      .cannot = {{Ability::scale,
                  "gives a job its nodes once; submit it again: dtrain clone NAME --workers=N (a "
                  "trainer that has --resume goes on from its last checkpoint)"}},
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
              text_field(
                  "--time", "TIME",
                  "Time limit as Slurm writes it: MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS or "
                  "UNLIMITED (--running-timeout takes 90m)"),
              text_field("--exclude", "NODES", "Nodes that must not be used (node[3-5])"),
              text_field("--reservation", "NAME", "Reservation that the job runs in"),
              text_field(
                  "--signal", "SIGNAL[@SECONDS]",
                  "Send SIGNAL to every rank SECONDS before the time limit or preemption; if a "
                  "rank then exits with code 75, the job is requeued (default for the bundled "
                  "trainer with --checkpoint-dir: USR1@60)"),
              text_field("--array", "INDEXES[%MOST]",
                         "Run the job once for each index (0-99), at most MOST of them at once: a "
                         "sweep, of which each task has its own SLURM_ARRAY_TASK_ID"),
              text_field(
                  "--mpi", "TYPE",
                  "How srun joins the ranks of an MPI program: pmix, pmi2 (srun --mpi=list)"),
              own_field(
                  Member<std::vector<std::string>>{.key = "sbatchArgs"}, "--sbatch-arg",
                  "--OPTION[=VALUE]",
                  "Any other option of sbatch's, as it stands (--sbatch-arg=--mail-type=END); "
                  "may be repeated"),
          },
      .records = "slurm",
  };
  return all;
}

} // namespace dtrain::slurm
