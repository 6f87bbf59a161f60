#include "backends/local/engine.h"

#include "backends/local/local_backend.h"

namespace dtrain::local {
namespace {

std::vector<FieldUse> field_uses() {
  return field_table(
      {"type",
       "name",
       "namespace",
       "priority",
       "workers",
       "gpus",
       "requireGpus",
       "command",
       "env",
       "workingDir",
       "maxRestarts",
       "gracePeriod",
       "ps",
       "psGpus",
       "chief",
       "evaluator",
       "nprocPerNode",
       "roleSequence",
       "successPolicy",
       "runningTimeout",
       "ttlAfterFinished",
       "cleanTaskPolicy",
       "minWorkers",
       "maxWorkers",
       "taskReplicas",
       "taskName",
       "labels",
       "syncMode",
       "syncSource",
       "syncUser",
       "syncTokenFile",
       "configFiles",
       "envFiles",
       "secrets",
       "tensorboard",
       "logdir",
       "templates",
       "templateValues",
       "data",
       "dataDirs",
       "gang",
       "rdma",
       "hostIPC",
       "hostNetwork",
       "hostPID",
       "startingTimeout",
       "logLimit"},
      {
          {"runs this machine's own programs",
           {"image", "psImage", "workerImage", "taskImages", "syncImage", "tensorboardImage"}},
          {"starts all instances at once", {"minAvailable"}},
      },
      {
          {"runs no containers", {"imagePullPolicy", "imagePullSecrets"}},
          {"reserves no CPUs", {"cpu"}},
          {"reserves no memory", {"memory"}},
          {"gives ranks this machine's own /dev/shm", {"shareMemory"}},
          {"sets no limits of CPU and memory",
           {"chiefCpu", "chiefCpuLimit", "chiefMemory", "chiefMemoryLimit", "psCpu", "psCpuLimit",
            "psMemory", "psMemoryLimit", "workerCpu", "workerCpuLimit", "workerMemory",
            "workerMemoryLimit", "evaluatorCpu", "evaluatorCpuLimit", "evaluatorMemory",
            "evaluatorMemoryLimit"}},
          {"gives every process a free port of its own", {"chiefPort", "psPort", "workerPort"}},
          {"has one node only",
           {"selectors", "tolerations", "nodeList", "topologySpread", "binpack", "chiefSelectors",
            "psSelectors", "workerSelectors", "evaluatorSelectors", "launcherSelectors"}},
          {"has no queues", {"queue"}},
          {"has no scheduler", {"scheduler"}},
          {"has no objects", {"api"}},
          {"has no objects to annotate",
           {"annotations", "workerAnnotations", "launcherAnnotations"}},
          {"does not tell models of GPUs apart", {"gpuType"}},
          {"hands out no devices but NVIDIA's (--gpus)", {"devices"}},
          {"never ends a job for another", {"preemptible"}},
          {"runs jobs as you", {"runAsUser"}},
      });
}

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = k_local,
      .make = [](const EngineAccess&) -> std::unique_ptr<Backend> {
        return std::make_unique<LocalBackend>();
      },
      .fields = field_uses(),
      .notes = {{"minWorkers",
                 "a worker that fails is restarted alone, up to --max-restarts times; "
                 "then the others go on without it, and the bundled trainer "
                 "continues from memory"},
                {"rdma", "the ranks have them anyway"}},
      .access = {},
      .helpers = {{k_supervise, supervise_here}},
  };
  return all;
}

} // namespace dtrain::local
