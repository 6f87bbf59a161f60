#include "backends/engine.h"
#include "backends/kubernetes/engine.h"
#include "backends/local/engine.h"
#include "backends/slurm/engine.h"
#include "backends/ssh/engine.h"

namespace dtrain {

const std::vector<const Engine*>& engines() {
  static const std::vector<const Engine*> all = {
      &local::engine(),
      &kubernetes::engine(),
      &slurm::engine(),
      &ssh::engine(),
  };
  return all;
}

} // namespace dtrain
