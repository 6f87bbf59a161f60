#include "backends/kubernetes/engine.h"

#include "backends/kubernetes/api/kubeconfig.h"
#include "backends/kubernetes/kubernetes_backend.h"
#include "backends/kubernetes/own_fields.h"

namespace dtrain::kubernetes {
namespace {

std::vector<FieldUse> field_uses() {
  return field_table(
      with_usual_fields({"gracePeriod",  "roleSequence", "ttlAfterFinished",
                         "minWorkers",   "maxWorkers",   "taskImages",
                         "taskReplicas", "taskName",     "configFiles",
                         "tensorboard",  "logdir",       "data",
                         "rdma",         "hostIPC",      "hostNetwork",
                         "hostPID",      "image",        "cpu",
                         "memory",       "workerCpu",    "workerMemory",
                         "nodeList",     "queue",        "preemptible"}),
      {},
      {
          {"shows a Pod only its own GPUs, as with --gpus-visible=rank", {"gpusVisible"}},
          {"excludes faulty GPUs by its device plugin", {"checkGpus"}},
          {"limits logs by the kubelet's containerLogMaxSize", {"logLimit"}},
      });
}

std::vector<std::string> contexts(const EngineAccess& access) {
  return context_names({access.get("kubeconfig"), access.get("context")});
}

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = "kubernetes",
      .make = make_kubernetes_backend,
      .fields = field_uses(),
      .notes = {{"gang", "with Volcano, or with coscheduling by --scheduler=NAME"},
                {"queue", "Kueue's LocalQueue; with --scheduler=volcano, Volcano's queue"},
                {"rdma", "the resource rdma/hca (another name: --device=NAME=1) and the capability "
                         "IPC_LOCK"}},
      .access =
          {
              {.name = "context",
               .metavar = "NAME",
               .help = "Context of the kubeconfig: cluster, user, namespace (default: its current "
                       "one)",
               .complete = Complete::engine,
               .env = "DTRAIN_CONTEXT",
               .in_profile = true,
               .values = contexts},
              {.name = "kubeconfig",
               .metavar = "FILE",
               .help = "Kubeconfig (default: those of KUBECONFIG, or ~/.kube/config)",
               .complete = Complete::file,
               .alias = "--config"},
          },
      .own = own_fields(),
  };
  return all;
}

} // namespace dtrain::kubernetes
