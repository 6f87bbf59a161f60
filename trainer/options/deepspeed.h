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

} // namespace trainer
