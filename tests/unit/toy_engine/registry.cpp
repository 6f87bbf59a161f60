#include "backends/kubernetes/engine.h"
#include "backends/local/engine.h"
#include "tests/unit/toy_engine/toy.h"

namespace dtrain {

const std::vector<const Engine*>& engines() {
  static const std::vector<const Engine*> all = {
      &local::engine(),
      &kubernetes::engine(),
      &toy::engine(),
  };
  return all;
}

} // namespace dtrain
