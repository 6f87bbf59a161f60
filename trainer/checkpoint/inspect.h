// `dtrain-trainer inspect DIR`: what the checkpoints in a folder are, and whether they are whole.
#pragma once

#include <string>

#include "submit/options/option_table.h"

namespace trainer {

dtrain::CommandTable inspect_command(std::string& folder);

/// Prints each checkpoint, newest first: where its run stood, and its tensors with what they hold.
/// Throws DataError where there is none, or none that --resume could continue from.
void inspect_checkpoints(const std::string& folder);

} // namespace trainer
