#include "backends/slurm/engine.h"

#include "backends/slurm/slurm_backend.h"

namespace dtrain::slurm {
namespace {

std::vector<FieldUse> field_uses() {
  return field_table(
      {"type",           "name",        "namespace",      "priority",  "workers",
       "gpus",           "requireGpus", "command",        "env",       "workingDir",
       "maxRestarts",    "ps",          "psGpus",         "chief",     "evaluator",
       "nprocPerNode",   "labels",      "envFiles",       "secrets",   "templates",
       "templateValues", "cpu",         "memory",         "workerCpu", "workerMemory",
       "queue",          "nodeList",    "runningTimeout", "gang"},
      {
          {"runs the cluster's own programs",
           {"image", "psImage", "workerImage", "syncImage", "tensorboardImage"}},
          {"gives ranks their node's own /dev/shm", {"shareMemory"}},
          {"starts all instances at once", {"minAvailable", "startingTimeout"}},
          {"has its own time between TERM and KILL (KillWait)", {"gracePeriod"}},
      },
      {
          {"runs no containers", {"imagePullPolicy", "imagePullSecrets"}},
          {"shows ranks their node's own folders", {"data", "dataDirs", "configFiles"}},
          {"runs jobs as you", {"runAsUser"}},
          {"has no objects to annotate",
           {"annotations", "workerAnnotations", "launcherAnnotations"}},
      });
}

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = k_slurm,
      .make = [](const EngineAccess& access) -> std::unique_ptr<Backend> {
        return std::make_unique<SlurmBackend>(Login(access.get("login-host")));
      },
      .fields = field_uses(),
      .access = {{.name = "login-host",
                  .metavar = "HOST",
                  .help = "Run Slurm's commands on HOST, over ssh",
                  .env = "DTRAIN_LOGIN_HOST",
                  .in_profile = true}},
  };
  return all;
}

} // namespace dtrain::slurm
