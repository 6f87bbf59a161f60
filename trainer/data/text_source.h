// A token set as the data of a masked language model.
#pragma once

#include <string>

#include "trainer/data/dataset.h"
#include "trainer/data/masking.h"

namespace trainer {

/// Of the folder that `dtrain-trainer tokenize` wrote: its rows, masked. Throws DataError naming
/// what is damaged, and UsageError where `masking` is impossible.
Dataset load_text(const std::string& folder, const MaskingOptions& masking = {});

} // namespace trainer
