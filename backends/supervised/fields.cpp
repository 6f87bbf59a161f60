#include "backends/supervised/fields.h"

namespace dtrain {

std::vector<FieldUse> supervised_fields(std::vector<std::string_view> taken,
                                        std::vector<FieldExcuse> unused,
                                        std::vector<FieldExcuse> refused) {
  for (const auto* key : {"gpusVisible", "checkGpus", "gracePeriod", "roleSequence", "minWorkers",
                          "maxWorkers", "taskReplicas", "taskName", "ttlAfterFinished", "logLimit",
                          "tensorboard", "logdir", "hostIPC", "hostNetwork", "hostPID"}) {
    taken.emplace_back(key);
  }
  unused.push_back({"starts all instances at once", {"minAvailable"}});
  for (const auto& excuse : std::vector<FieldExcuse>{
           {"reserves no CPUs", {"cpu", "workerCpu"}},
           {"reserves no memory", {"memory", "workerMemory"}},
           {"has no queues", {"queue"}},
           {"never preempts a job", {"preemptible"}},
       }) {
    refused.push_back(excuse);
  }
  return field_table(with_usual_fields(std::move(taken)), unused, refused);
}

} // namespace dtrain
