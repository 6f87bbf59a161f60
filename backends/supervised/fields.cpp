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
           {"reserves no CPUs", {"cpu", "workerCpu"}},
           {"reserves no memory", {"memory", "workerMemory"}},
           {"has no queues", {"queue"}},
           {"never ends a job for another", {"preemptible"}},
       }) {
    refused.push_back(excuse);
  }
  return field_table(taken, unused, refused);
}

} // namespace dtrain
