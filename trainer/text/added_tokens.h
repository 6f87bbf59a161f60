// Tokens that are found whole in a text, before the model cuts what lies between them: the special
// ones, and those that were added to a vocabulary, as the `added_tokens` of tokenizer.json.
//
// Matches are those of Hugging Face's `tokenizers`: from left to right, the longest at a place.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/vocabulary.h"

namespace trainer {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false; ///< Not where a letter, a digit or _ is beside it.
  bool lstrip = false;      ///< White space before it goes with it.
  bool rstrip = false;      ///< And that behind it.
  bool normalized = false;  ///< Found in the text as the model's normalizer leaves it.
  bool special = false;     ///< Left out of a text that is made of tokens.
  bool is_of_model = true;  ///< The model knows it too, and may cut a word into it.
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Empty ones are never found. Of two with the same content, which one is found is open.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// From left to right: plain(text) for what lies between the tokens, found(id) for each of them.
  template <typename Plain, typename Found>
  void split(std::string_view text, const Plain& plain, const Found& found) const {
    std::size_t given = 0;
    for (Match match = find(text, 0); match.token != nullptr; match = find(text, match.end)) {
      if (match.token->single_word && !is_word_of_its_own(text, match)) {
        continue; // Nor is a shorter one looked for at this place.
      }
      const std::size_t begin = begin_of(text, match, given);
      if (given < begin) {
        plain(text.substr(given, begin - given));
      }
      found(match.token->id);
      given = end_of(text, match);
    }
    if (given < text.size()) {
      plain(text.substr(given));
    }
  }

 private:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    const AddedToken* token = nullptr; ///< Null: no more.
  };

  /// The first at `from` or behind.
  Match find(std::string_view text, std::size_t from) const;
  /// Where one may begin, npos where nowhere.
  std::size_t next_start(std::string_view text, std::size_t from) const;
  const AddedToken* longest_at_start_of(std::string_view text) const;
  static bool is_word_of_its_own(std::string_view text, const Match& match);
  /// With what it strips. `given`: the text before that belongs to an earlier match.
  static std::size_t begin_of(std::string_view text, const Match& match, std::size_t given);
  static std::size_t end_of(std::string_view text, const Match& match);

  std::vector<AddedToken> tokens_; ///< Sorted by their content, as bytes.
  std::array<bool, 256> starts_{}; ///< First bytes of the tokens.
  bool has_one_start_ = false;
};

} // namespace trainer
