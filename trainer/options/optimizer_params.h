// What each optimizer takes, as flags and as DeepSpeed's file say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/options.h"

namespace trainer {

/// A constant that not all optimizers have.
struct OptimizerParam {
  std::vector<std::string_view> optimizers; ///< That take it, as --optimizer has them.
  std::string_view key;                     ///< In DeepSpeed's optimizer.params.
  std::string_view flag = "";               ///< Empty: none; the trainer does nothing with it.
  double TrainerOptions::*value = nullptr;  ///< The flag's.

  bool is_of(std::string_view optimizer) const;
};

const std::vector<OptimizerParam>& optimizer_params();

} // namespace trainer
