// The option table's parts, a heading or two each.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/options/options.h"

namespace trainer {

inline constexpr std::int64_t k_most_rows = 1 << 20; ///< Of a pass.

std::vector<dtrain::Option> training_flags(TrainerOptions& o);
std::vector<dtrain::Option> output_flags(TrainerOptions& o);
std::vector<dtrain::Option> machine_flags(TrainerOptions& o);
std::vector<dtrain::Option> parameter_server_flags(TrainerOptions& o);
std::vector<dtrain::Option> other_flags(TrainerOptions& o);

/// "512,256"
std::vector<std::size_t> parse_hidden(const std::string& text);

/// Throws UsageError for a shape that no such model has.
ModelOptions model_options(const TrainerOptions& options);

} // namespace trainer
