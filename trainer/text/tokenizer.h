// Text into tokens, as Hugging Face's `tokenizers` cuts it for BERT, RoBERTa and GPT-2.
//
// Names of special tokens, such as "[MASK]", and of tokens that were added to the vocabulary are
// found first; the text between them is split by the model, WordPiece or byte-level BPE. Repeated
// pieces of text come from a cache.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/text/added_tokens.h"
#include "trainer/text/byte_map.h"
#include "trainer/text/vocabulary.h"

namespace trainer {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Tokens of the vocabulary that are to be found whole in a text, also special ones: these then
  /// have the flags that are given here.
  void add(const std::vector<AddedToken>& tokens);

  /// Appends the tokens of `text`, which is UTF-8. Not for threads to share.
  void encode(std::string_view text, std::vector<TokenId>& to);

  /// The text of tokens, special ones left out; words a space apart where the model keeps none.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const SpecialTokens& special() const { return special_; }
  virtual const char* kind() const = 0; ///< "WordPiece"

 protected:
  /// `names`: of pad, unknown, first, last, mask; all of them are `only` where the vocabulary has
  /// that and no mask. Throws DataError naming `path` and the one that the vocabulary lacks.
  /// `strips`: spaces before the mask go with it.
  Tokenizer(Vocabulary vocabulary, const std::string& path, std::array<std::string, 5> names,
            bool strips, const std::string& only = "");

  /// Tokenizes text without special and added tokens.
  virtual void encode_plain(std::string_view text, std::vector<TokenId>& to) = 0;

  /// As the model's normalizer leaves it, which changes it no more a second time; valid until the
  /// next call.
  virtual std::string_view normalised(std::string_view text) { return text; }

  /// Whether the model cuts words into it: it was not only added.
  bool is_of_model(TokenId id) const;
  /// Whether it is left out of a text that is made of tokens.
  bool is_special(TokenId id) const;

  /// Appends the tokens of `piece`, from the cache or, the first time, from `cut`.
  template <typename Cut>
  void encode_remembered(std::string_view piece, std::vector<TokenId>& to, const Cut& cut) {
    if (piece.size() > k_longest_remembered || remembered_.bytes() > k_most_remembered) {
      cut(piece, to);
      return;
    }
    const auto [number, is_new] = remembered_.insert(piece);
    if (is_new) {
      const auto first = static_cast<std::uint32_t>(ids_.size());
      cut(piece, ids_);
      spans_.push_back({first, static_cast<std::uint32_t>(ids_.size()) - first});
    }
    const auto& [first, count] = spans_[number];
    to.insert(to.end(), ids_.begin() + first, ids_.begin() + first + count);
  }

 private:
  static constexpr std::size_t k_longest_remembered = 64;
  static constexpr std::size_t k_most_remembered = std::size_t{64} << 20;

  Vocabulary vocabulary_;
  SpecialTokens special_;
  std::unordered_map<TokenId, AddedToken> added_; ///< The special ones, too.
  AddedTokens raw_;                               ///< Those to find in the text as it is.
  AddedTokens normalised_;                        ///< In what the normalizer makes of it.
  ByteMap remembered_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans_; ///< Ranges of ids_: first, count.
  std::vector<TokenId> ids_;
};

/// Text normalization of WordPiece.
struct TokenizerOptions {
  bool lowercase = true;                            ///< As in uncased BERT.
  std::optional<bool> strip_accents = std::nullopt; ///< None: where lowercase is.
  bool clean = true;     ///< Remove control characters, and make every space U+0020.
  bool split_cjk = true; ///< Make each ideograph a word.

  bool operator==(const TokenizerOptions&) const = default;
};

/// Loads vocab.txt (WordPiece), or vocab.json and merges.txt (byte-level BPE), or, where these are
/// missing, tokenizer.json; `path` is the folder or the vocabulary in it. `options`, if given,
/// override tokenizer_config.json, and that tokenizer.json. Throws DataError that names the file.
std::unique_ptr<Tokenizer>
load_tokenizer(const std::string& path,
               const std::optional<TokenizerOptions>& options = std::nullopt);

/// Copies the files that load_tokenizer() reads at `path` to a folder, and removes what another
/// vocabulary has left there. `options`, if given, are written instead of those of the files, which
/// are of a WordPiece then. Throws Error; UsageError where it would overwrite a file beside `path`.
void copy_tokenizer(const std::string& path, const std::string& folder,
                    const std::optional<TokenizerOptions>& options = std::nullopt);

/// Writes them: vocab.txt and tokenizer_config.json, the only files of a vocabulary in the folder
/// then. Throws Error.
void save_word_piece(const std::vector<std::string>& tokens, const TokenizerOptions& options,
                     const std::string& folder);

/// Writes them: vocab.json, merges.txt and tokenizer_config.json, GPT-2's or, of a vocabulary with
/// its special tokens, RoBERTa's; the only files of a vocabulary in the folder then. Throws Error.
void save_byte_bpe(const std::vector<std::string>& tokens, const Merges& merges,
                   const std::string& folder);

} // namespace trainer
