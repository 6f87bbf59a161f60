// `dtrain-trainer fill`: the words that a trained BERT or RoBERTa predicts for a text's blanks.
#pragma once

#include <cstdint>
#include <string>

#include "submit/options/option_table.h"

namespace trainer {

struct FillOptions {
  std::string checkpoint; ///< A run's folder, or Hugging Face's.
  std::string text;
  std::int64_t top = 5;
};

dtrain::CommandTable fill_command(FillOptions& options);

/// Prints the likeliest words of each blank. Throws DataError naming the file, UsageError where the
/// text has no blank or is too long.
void fill(const FillOptions& options);

} // namespace trainer
