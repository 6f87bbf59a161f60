// A token set as the data of a language model.
#pragma once

#include <string>

#include "trainer/data/dataset.h"
#include "trainer/data/masking.h"

namespace trainer {

/// Of the folder that `dtrain-trainer tokenize` wrote: its rows, masked, or with every next token
/// to be told. Throws DataError naming what is damaged, and UsageError where `masking` is
/// impossible.
Dataset load_text(const std::string& folder, bool is_causal = false,
                  const MaskingOptions& masking = {});

} // namespace trainer
