#include "backends/local/engine.h"

#include "backends/local/local_backend.h"
#include "backends/supervised/fields.h"

namespace dtrain::local {
namespace {

std::vector<FieldUse> field_uses() {
  return supervised_fields(
      {"configFiles", "data", "rdma"},
      {{"runs this machine's own programs",
        {"image", "psImage", "workerImage", "taskImages", "syncImage", "tensorboardImage"}}},
      {
          {"has one node only", {"nodeList"}},
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
      .cannot = {k_no_server},
      .helpers = {{k_supervise, supervise_here}},
      .records = "jobs/local",
  };
  return all;
}

} // namespace dtrain::local
