// DeepSpeed's configuration file, as the trainer's flags: --config=ds_config.json.
//
// A key means here what it means there, and one that is left out has DeepSpeed's default. A key
// that DeepSpeed knows and that changes nothing here is named in a warning; one that it does not
// know is an error. Flags go before the file.
#pragma once

#include <string>
#include <vector>

#include "trainer/options/options.h"

namespace trainer {

/// Sets `options`; gives the warnings, a line each. Throws UsageError naming the file and the key.
std::vector<std::string> read_deepspeed_config(const std::string& path, TrainerOptions& options);

/// Of samples in a step of all ranks, rows in a pass of a rank, and passes in a step, infers those
/// that were not given (0), for so many ranks. Gives a line that says where each comes from; empty
/// where none was asked for but --batch-size. Throws UsageError where they contradict each other.
/// `is_elastic`: the ranks come and go, and a global batch that was given stays.
std::string settle_batch(TrainerOptions& options, int ranks, bool is_elastic = false);

} // namespace trainer
