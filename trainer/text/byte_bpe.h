// The tokenizer of GPT-2 and RoBERTa: byte-level byte pair encoding.
//
// Text is split into contractions ('s, 'll), runs of letters, of digits and of other characters,
// each with the space before it, and white space. A piece starts as its bytes; the adjacent pair
// that comes first in merges.txt is merged into one token, leftmost first, until no pair of the
// file is left. The files write each byte as a letter, by GPT-2's table.
#pragma once

#include <array>
#include <unordered_map>

#include "trainer/text/tokenizer.h"

namespace trainer {

class ByteBpe final : public Tokenizer {
 public:
  /// Throws DataError naming the file.
  ByteBpe(const std::string& vocabulary_path, const std::string& merges_path);
  /// `path` names the vocabulary in messages.
  ByteBpe(Vocabulary vocabulary, const Merges& merges, const std::string& path);

  std::string decode(std::span<const TokenId> ids) const override;
  const char* kind() const override { return "byte-level BPE"; }

 private:
  struct Merge {
    std::uint32_t rank;
    TokenId id;
  };
  void encode_plain(std::string_view text, std::vector<TokenId>& to) override;
  void encode_piece(std::string_view piece, std::vector<TokenId>& to) const;
  void number_bytes(const std::string& path);
  void read_merges(const std::string& path);
  /// False: their merge is not in the vocabulary.
  bool add_merge(std::string_view first, std::string_view second);

  std::array<TokenId, 256> bytes_{};
  std::unordered_map<std::uint64_t, Merge> merges_; ///< Keyed by both tokens.
};

/// GPT-2's only special token, which ends a text.
inline constexpr const char* k_gpt2_special = "<|endoftext|>";

/// The special tokens of a vocabulary that is made, in its order: RoBERTa's, or GPT-2's.
const std::vector<std::string>& byte_bpe_special_names(bool is_roberta);

/// Length of the piece at the start of `text`; 0 if `text` is empty.
std::size_t byte_bpe_piece(std::string_view text);

/// A byte as its letter; U+0100 and up for bytes that are not printable.
const std::array<char32_t, 256>& byte_letters();

} // namespace trainer
