// `dtrain-trainer tokenize TEXT…`: a vocabulary of the text, and the text in its tokens, for
// training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "submit/options/option_table.h"

namespace trainer {

struct TokenizeOptions {
  std::vector<std::string> texts;
  std::string output;
  std::string vocabulary; ///< Empty: one is made of the text.
  std::string type;       ///< Of the one that is made: wordpiece, as empty is, or bpe.
  std::int64_t size = 0;  ///< 0: that of BERT's, or of GPT-2's.
  std::int64_t min_frequency = 2;
  std::int64_t length = 128;
  bool lines = false;
  bool cased = false;
  double held_out = 1; ///< Percent.
  bool no_progress = false;
};

dtrain::CommandTable tokenize_command(TokenizeOptions& options);

/// Throws UsageError or DataError naming the text and the line.
void tokenize(const TokenizeOptions& options);

} // namespace trainer
