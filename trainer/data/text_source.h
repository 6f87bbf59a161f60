// A token set as the data of a language model.
#pragma once

#include <string>

#include "trainer/data/dataset.h"
#include "trainer/data/masking.h"

namespace trainer {

/// Loads a folder that `dtrain-trainer tokenize` wrote, to predict masked tokens or each next
/// token. Throws DataError naming the damaged file, and UsageError if `masking` is impossible.
Dataset load_text(const std::string& folder, bool is_causal = false,
                  const MaskingOptions& masking = {});

} // namespace trainer
