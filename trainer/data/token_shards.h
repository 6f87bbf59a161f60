// Rows of tokens on the disk, as `dtrain-trainer tokenize` writes them and training reads them.
//
// A token set is a folder with manifest.json, which is written last and holds the common settings
// and the list of shards; the tokenizer's files; and the shards. A shard is a header of 64 bytes
// and rows of equal length, as u16 if the vocabulary allows, else u32, little-endian:
//
//   0  char[8]  "dttokens"        24  u32  tokens in a row
//   8  u32      version, 1        28  u32  tokens of the vocabulary
//   12 u32      bytes of a token  32  u64  XXH64 of all behind the header
//   16 u64      rows              40  zeros
//
// Each row has its [CLS] and [SEP]; a row that is not full ends in [PAD]. Shards are mapped, so
// that the ranks of a machine share their pages. Ranks compare the digests of their manifests,
// which hold the digests of the shards, and so need not read all data to check that they have the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/bytes.h"
#include "trainer/text/vocabulary.h"

namespace trainer {

struct ShardHeader {
  std::uint32_t token_bytes = 2; ///< 2 or 4
  std::uint64_t rows = 0;
  std::uint32_t length = 0; ///< Tokens in a row.
  std::uint32_t vocabulary = 0;
  std::uint64_t digest = 0;

  bool operator==(const ShardHeader&) const = default;
  std::uint64_t payload() const { return rows * length * token_bytes; }
};

constexpr std::size_t k_shard_header_bytes = 64;

/// Parses the first bytes of a file of `file_size` bytes, which may be arbitrary. Throws DataError
/// naming `path`.
ShardHeader parse_shard_header(const std::string& path, std::span<const std::uint8_t> header,
                               std::uint64_t file_size);
std::vector<std::uint8_t> shard_header_bytes(const ShardHeader& header);

/// Rows of one half of a token set. Copies share the pages.
class TokenRows {
 public:
  TokenRows() = default;

  std::size_t count() const { return count_; }
  std::size_t length() const { return length_; }

  /// Writes row `row`, with its padding, to `to` (length). Returns the number of tokens before the
  /// padding. Throws DataError if a token is outside the vocabulary: the file has changed.
  std::size_t read(std::size_t row, std::span<TokenId> to) const;

  /// Throws DataError naming the first shard whose tokens do not match its digest.
  void verify() const;

 private:
  friend class ManifestReader;
  struct Shard {
    std::string path;
    ShardHeader header;
    Bytes tokens;
    std::size_t first_row;
  };
  std::vector<Shard> shards_;
  std::size_t count_ = 0;
  std::size_t length_ = 0;
  TokenId pad_ = 0;
};

/// The halves' names, in the names of their shards and in the manifest.
constexpr const char* k_train_rows = "train";
constexpr const char* k_held_out_rows = "held-out";

struct TokenSet {
  std::string folder;
  TokenRows train;
  TokenRows held_out;
  std::size_t length = 0; ///< Tokens in a row.
  std::size_t vocabulary = 0;
  SpecialTokens special;
  bool is_packed = true;    ///< Else each line of the text is its own row.
  std::uint64_t digest = 0; ///< Of the manifest, which covers all files.
};

/// Whether a folder is a token set.
bool is_token_set(const std::string& folder);

/// Throws DataError naming the file that is missing, truncated or does not match the manifest.
TokenSet open_token_set(const std::string& folder);

/// Writes a token set, row by row.
class TokenSetWriter {
 public:
  struct Options {
    std::size_t length = 128;
    std::size_t vocabulary = 0;
    SpecialTokens special;
    bool is_packed = true;
    double held_out = 0.01; ///< Of the rows, evenly spread.
    std::size_t shard_bytes = std::size_t{256} << 20;
  };
  /// Removes a token set that `folder` holds.
  TokenSetWriter(std::string folder, const Options& options);

  /// A row's tokens, at most `length`; it is padded.
  void add(std::span<const TokenId> row);
  /// Writes the manifest, which completes the token set.
  void finish();

  std::size_t rows() const { return rows_; }
  std::size_t held_out() const { return halves_[1].rows; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t files() const { return files_; }

 private:
  struct Half {
    const char* name;
    std::vector<std::uint8_t> tokens; ///< Of the shard that is being filled.
    std::size_t rows = 0;
    std::size_t shard_rows = 0; ///< Of the shard that is being filled.
    std::string manifest;       ///< Of the shards written, as JSON.
  };
  void write_shard(Half& half);

  std::string folder_;
  Options options_;
  std::uint32_t token_bytes_;
  std::vector<Half> halves_;
  std::size_t rows_ = 0;
  std::size_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

} // namespace trainer
