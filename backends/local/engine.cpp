#include "backends/local/engine.h"

#include "backends/local/gpu_claims.h"
#include "backends/local/gpus.h"
#include "backends/local/local_backend.h"
#include "backends/supervised/fields.h"

namespace dtrain::local {
namespace {

std::vector<FieldUse> field_uses() {
  return supervised_fields(
      {"configFiles", "data", "rdma"},
      {{"runs programs that are installed on this machine, not images",
        {"image", "psImage", "workerImage", "taskImages", "syncImage", "tensorboardImage"}}},
      {
          {"has only one node", {"nodeList"}},
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
      .notes = {{"gpus", "if too few, shares those in use or runs on the CPU"},
                {"requireGpus", "also if too few are free"},
                {"checkGpus", "an elastic job starts without workers for which no GPU is left"},
                {"minWorkers",
                 "restarts only the failed worker, up to --max-restarts times; then the others "
                 "continue without it, and the bundled trainer goes on from what it has in memory"},
                {"rdma", "always shares them with the ranks"}},
      .cannot = {k_no_server},
      .variables = {k_gpu_claims, k_local_gpus},
      .helpers = {{k_supervise, supervise_here}},
      .records = "jobs/local",
  };
  return all;
}

} // namespace dtrain::local
