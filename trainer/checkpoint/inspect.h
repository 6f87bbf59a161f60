// `dtrain-trainer inspect DIR`: describes the checkpoints in a folder, and checks them for damage.
#pragma once

#include <string>

#include "submit/options/option_table.h"

namespace trainer {

dtrain::CommandTable inspect_command(std::string& folder);

/// Prints each checkpoint, newest first: its run's progress, and the shape and values of its
/// tensors. Throws DataError if there is none that --resume could continue from.
void inspect_checkpoints(const std::string& folder);

} // namespace trainer
