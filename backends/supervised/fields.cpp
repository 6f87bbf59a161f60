#include "backends/supervised/fields.h"

namespace dtrain {

std::vector<FieldUse> supervised_fields(std::vector<std::string_view> taken,
                                        std::vector<FieldExcuse> unused,
                                        std::vector<FieldExcuse> refused) {
  taken.insert(taken.end(), {"type",
                             "name",
                             "namespace",
                             "priority",
                             "workers",
                             "command",
                             "env",
                             "workingDir",
                             "maxRestarts",
                             "gracePeriod",
                             "ps",
                             "chief",
                             "evaluator",
                             "nprocPerNode",
                             "roleSequence",
                             "successPolicy",
                             "runningTimeout",
                             "ttlAfterFinished",
                             "cleanTaskPolicy",
                             "minWorkers",
                             "taskReplicas",
                             "taskName",
                             "labels",
                             "envFiles",
                             "secrets",
                             "templates",
                             "templateValues",
                             "gang",
                             "hostIPC",
                             "hostNetwork",
                             "hostPID",
                             "logLimit"});
  unused.push_back({"starts all instances at once", {"minAvailable", "startingTimeout"}});
  for (const auto& excuse : std::vector<FieldExcuse>{
           {"runs no containers", {"imagePullPolicy", "imagePullSecrets"}},
           {"reserves no CPUs", {"cpu"}},
           {"reserves no memory", {"memory"}},
           {"sets no limits of CPU and memory",
            {"chiefCpu", "chiefCpuLimit", "chiefMemory", "chiefMemoryLimit", "psCpu", "psCpuLimit",
             "psMemory", "psMemoryLimit", "workerCpu", "workerCpuLimit", "workerMemory",
             "workerMemoryLimit", "evaluatorCpu", "evaluatorCpuLimit", "evaluatorMemory",
             "evaluatorMemoryLimit"}},
           {"gives every process a free port of its own", {"chiefPort", "psPort", "workerPort"}},
           {"has no queues", {"queue"}},
           {"has no scheduler", {"scheduler"}},
           {"has no objects", {"api"}},
           {"has no objects to annotate",
            {"annotations", "workerAnnotations", "launcherAnnotations"}},
           {"does not tell models of GPUs apart", {"gpuType"}},
           {"hands out no devices but NVIDIA's (--gpus)", {"devices"}},
           {"never ends a job for another", {"preemptible"}},
       }) {
    refused.push_back(excuse);
  }
  return field_table(taken, unused, refused);
}

} // namespace dtrain
