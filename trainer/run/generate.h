// `dtrain-trainer generate`: how a trained GPT-2 goes on with a text.
#pragma once

#include <cstdint>
#include <string>

#include "submit/options/option_table.h"

namespace trainer {

struct GenerateOptions {
  std::string checkpoint; ///< A run's folder, or Hugging Face's.
  std::string text;
  std::int64_t tokens = 50;
  double temperature = 0;
  std::int64_t top = 0; ///< 0: all.
  std::int64_t seed = 0;
};

dtrain::CommandTable generate_command(GenerateOptions& options);

/// Prints the text and what the model adds, as it comes. Throws DataError naming the file,
/// UsageError where the text is too long.
void generate(const GenerateOptions& options);

} // namespace trainer
