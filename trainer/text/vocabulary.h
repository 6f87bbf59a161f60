// Tokens and their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trainer {

using TokenId = std::int32_t;

/// Of a byte pair encoding, in order: two tokens whose text together is a third's.
using Merges = std::vector<std::pair<std::string, std::string>>;

/// Ids of the special tokens.
struct SpecialTokens {
  TokenId pad = 0;
  TokenId unknown = 0;
  TokenId first = 0; ///< Start of a sequence: [CLS], <s>
  TokenId last = 0;  ///< [SEP], </s>
  TokenId mask = 0;

  bool operator==(const SpecialTokens&) const = default;
  /// GPT-2's special tokens: only one, for the end of a text.
  bool has_mask() const { return mask != last; }
  bool contains(TokenId id) const {
    return id == pad || id == unknown || id == first || id == last || id == mask;
  }
};

class Vocabulary {
 public:
  Vocabulary() = default;
  /// Number i is tokens[i]; a token that comes twice is the last of them.
  explicit Vocabulary(std::vector<std::string> tokens);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::size_t size() const { return tokens_.size(); }
  const std::string& token(TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> find(std::string_view token) const;
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, TokenId> ids_; ///< Into tokens_.
};

} // namespace trainer
