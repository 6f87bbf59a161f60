// tokenizer.json, the one file in which Hugging Face's `tokenizers` keeps a tokenizer.
//
// Read are the two kinds that this program has, WordPiece as BERT uses it and byte-level BPE as
// GPT-2 and RoBERTa do; what cuts text in another way is refused.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/text/tokenizer.h"

namespace trainer {

struct TokenizerJson {
  bool is_bpe = false;
  Vocabulary vocabulary;
  std::vector<AddedToken> added; ///< To be found whole in a text.
  Merges merges;                 ///< Only of a BPE.
  TokenizerOptions options;      ///< Only of WordPiece.
};

/// Throws DataError naming the file and what of it is missing, damaged or of another kind.
TokenizerJson read_tokenizer_json(const std::string& path);

/// The vocabulary of a JSON object of tokens and their numbers. Throws DataError naming `path`.
Vocabulary numbered_tokens(const nlohmann::json& numbers, const std::string& path);

} // namespace trainer
