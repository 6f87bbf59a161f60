#include "trainer/options/optimizer_params.h"

#include <algorithm>

namespace trainer {

bool OptimizerParam::is_of(std::string_view optimizer) const {
  return std::find(optimizers.begin(), optimizers.end(), optimizer) != optimizers.end();
}

const std::vector<OptimizerParam>& optimizer_params() {
  using Options = TrainerOptions;
  static const std::vector<OptimizerParam> params = {
      {{"sgd", "muon"}, "momentum", "--momentum", &Options::momentum},
      {{"adam", "adamw", "lamb", "muon"}, "betas", "--beta1", &Options::beta1},
      {{"adam", "adamw", "lamb", "muon"}, "betas", "--beta2", &Options::beta2},
      {{"adam", "adamw", "lamb", "muon"}, "eps", "--epsilon", &Options::epsilon},
      {{"adam", "adamw", "lamb"}, "bias_correction"},
      {{"adam", "adamw"}, "adam_w_mode"},
      {{"adam", "adamw"}, "torch_adam"},
      {{"adam", "adamw"}, "amsgrad"},
      {{"lamb"}, "max_coeff"},
      {{"lamb"}, "min_coeff"}};
  return params;
}

} // namespace trainer
