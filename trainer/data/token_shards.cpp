#include "trainer/data/token_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "submit/errors.h"
#include "trainer/data/xxh64.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/json_file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view k_magic = "dttokens";
constexpr std::uint32_t k_version = 1;
constexpr std::uint32_t k_longest_row = 1 << 20;
constexpr std::size_t k_most_manifest_bytes = std::size_t{64} << 20;
constexpr const char* k_manifest = "manifest.json";
constexpr const char* k_format = "dtrain tokens";
constexpr const char* k_again = "make the token set again with dtrain-trainer tokenize";

template <typename Number>
Number number_at(std::span<const std::uint8_t> bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

template <typename Number>
void put_number(std::vector<std::uint8_t>& bytes, std::size_t at, Number number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

std::string manifest_path(const std::string& folder) {
  return (fs::path(folder) / k_manifest).string();
}

std::string read_manifest(const std::string& folder) {
  const std::string path = manifest_path(folder);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file || size > k_most_manifest_bytes) {
    throw DataError(fmt::format("{}: cannot read it; give --data a folder that dtrain-trainer "
                                "tokenize has written",
                                path));
  }
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

} // namespace

ShardHeader parse_shard_header(const std::string& path, std::span<const std::uint8_t> header,
                               std::uint64_t file_size) {
  if (header.size() < k_shard_header_bytes) {
    throw DataError(fmt::format("{}: {} bytes are no token shard, its header alone has {}", path,
                                header.size(), k_shard_header_bytes));
  }
  if (std::memcmp(header.data(), k_magic.data(), k_magic.size()) != 0) {
    throw DataError(fmt::format("{}: does not begin as a token shard does; {}", path, k_again));
  }
  if (const auto version = number_at<std::uint32_t>(header, 8); version != k_version) {
    throw DataError(fmt::format("{}: a token shard of version {}; this program reads version {}",
                                path, version, k_version));
  }
  ShardHeader found;
  found.token_bytes = number_at<std::uint32_t>(header, 12);
  found.rows = number_at<std::uint64_t>(header, 16);
  found.length = number_at<std::uint32_t>(header, 24);
  found.vocabulary = number_at<std::uint32_t>(header, 28);
  found.digest = number_at<std::uint64_t>(header, 32);
  if ((found.token_bytes != 2 && found.token_bytes != 4) || found.length == 0 ||
      found.length > k_longest_row || found.vocabulary == 0 || found.rows == 0 ||
      found.vocabulary > static_cast<std::uint32_t>(std::numeric_limits<TokenId>::max())) {
    throw DataError(fmt::format("{}: its header says {} rows of {} tokens of {} bytes each, of a "
                                "vocabulary of {}; the file is damaged",
                                path, found.rows, found.length, found.token_bytes,
                                found.vocabulary));
  }
  const std::uint64_t row = std::uint64_t{found.length} * found.token_bytes;
  if (file_size < k_shard_header_bytes || (file_size - k_shard_header_bytes) % row != 0 ||
      (file_size - k_shard_header_bytes) / row != found.rows) {
    throw DataError(fmt::format("{}: {} bytes, where {} rows of {} tokens are to be; the file is "
                                "damaged or cut off, {}",
                                path, file_size, found.rows, found.length, k_again));
  }
  return found;
}

std::vector<std::uint8_t> shard_header_bytes(const ShardHeader& header) {
  std::vector<std::uint8_t> bytes(k_shard_header_bytes);
  std::copy(k_magic.begin(), k_magic.end(), bytes.begin());
  put_number(bytes, 8, k_version);
  put_number(bytes, 12, header.token_bytes);
  put_number(bytes, 16, header.rows);
  put_number(bytes, 24, header.length);
  put_number(bytes, 28, header.vocabulary);
  put_number(bytes, 32, header.digest);
  return bytes;
}

std::size_t TokenRows::read(std::size_t row, std::span<TokenId> to) const {
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), row,
      [](std::size_t wanted, const Shard& shard) { return wanted < shard.first_row; });
  const Shard& shard = *std::prev(after);
  const std::size_t bytes = length_ * shard.header.token_bytes;
  const std::uint8_t* from = shard.tokens.data() + (row - shard.first_row) * bytes;
  std::uint32_t largest = 0;
  if (shard.header.token_bytes == 2) {
    for (std::size_t i = 0; i < length_; ++i) {
      const auto token = static_cast<std::uint32_t>(from[2 * i] | from[2 * i + 1] << 8);
      largest = std::max(largest, token);
      to[i] = static_cast<TokenId>(token);
    }
  } else {
    for (std::size_t i = 0; i < length_; ++i) {
      std::uint32_t token = 0;
      std::memcpy(&token, from + 4 * i, sizeof token);
      largest = std::max(largest, token);
      to[i] = static_cast<TokenId>(token);
    }
  }
  if (largest >= shard.header.vocabulary) {
    throw DataError(fmt::format("{}: row {} has token {}, of a vocabulary of {}; the file is "
                                "damaged, {}",
                                shard.path, row - shard.first_row, largest, shard.header.vocabulary,
                                k_again));
  }
  std::size_t count = length_;
  while (count > 0 && to[count - 1] == pad_) {
    --count;
  }
  return count;
}

void TokenRows::verify() const {
  for (const Shard& shard : shards_) {
    if (xxh64({shard.tokens.data(), shard.tokens.size()}, 0) != shard.header.digest) {
      throw DataError(fmt::format("{}: its tokens are not those that were written: the digest "
                                  "differs; the file is damaged, {}",
                                  shard.path, k_again));
    }
  }
}

bool is_token_set(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(manifest_path(folder), error);
}

/// Its error messages name the manifest and the field that is wrong.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& folder)
      : folder_(folder), path_(manifest_path(folder)) {}

  TokenSet read() {
    const std::string text = read_manifest(folder_);
    const Json manifest = parse_shallow_json(text);
    if (!manifest.is_object() || this->text(manifest, "format") != k_format) {
      throw DataError(fmt::format("{}: is no manifest of a token set; {}", path_, k_again));
    }
    TokenSet set;
    set.folder = folder_;
    set.length = number(manifest, "length", k_longest_row + 1);
    set.vocabulary = number(manifest, "vocabulary", std::numeric_limits<TokenId>::max());
    set.is_packed = number(manifest, "packed", 2) == 1;
    set.digest = xxh64({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, 0);
    const std::array<std::pair<const char*, TokenId*>, 5> special = {
        {{"pad", &set.special.pad},
         {"unknown", &set.special.unknown},
         {"first", &set.special.first},
         {"last", &set.special.last},
         {"mask", &set.special.mask}}};
    for (const auto& [key, id] : special) {
      *id = static_cast<TokenId>(number(manifest, key, set.vocabulary));
    }
    set.train = rows(manifest, k_train_rows, set);
    set.held_out = rows(manifest, k_held_out_rows, set);
    if (set.train.count() == 0) {
      throw DataError(fmt::format("{}: has no rows to train on; {}", path_, k_again));
    }
    return set;
  }

 private:
  /// The value, which must be below `end`.
  std::uint64_t number(const Json& object, const char* key, std::uint64_t end) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned() ||
        found->get<std::uint64_t>() >= end) {
      throw DataError(fmt::format("{}: its \"{}\" is no number from 0 to {}; {}", path_, key,
                                  end - 1, k_again));
    }
    return found->get<std::uint64_t>();
  }

  std::string text(const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) {
      throw DataError(fmt::format("{}: has no \"{}\"; {}", path_, key, k_again));
    }
    return found->get<std::string>();
  }

  TokenRows rows(const Json& manifest, const char* half, const TokenSet& set) const {
    const auto shards = manifest.find(half);
    if (shards == manifest.end() || !shards->is_array()) {
      throw DataError(fmt::format("{}: has no list of shards \"{}\"; {}", path_, half, k_again));
    }
    TokenRows rows;
    rows.length_ = set.length;
    rows.pad_ = set.special.pad;
    for (const Json& entry : *shards) {
      TokenRows::Shard shard = open(entry, set);
      shard.first_row = rows.count_;
      rows.count_ += shard.header.rows;
      rows.shards_.push_back(std::move(shard));
    }
    return rows;
  }

  TokenRows::Shard open(const Json& entry, const TokenSet& set) const {
    const std::string name = entry.is_object() ? text(entry, "file") : "";
    if (!is_file_name(name)) {
      throw DataError(fmt::format("{}: names a shard {}, which is no file of the folder; {}", path_,
                                  dtrain::printable(name), k_again));
    }
    TokenRows::Shard shard;
    shard.path = (fs::path(folder_) / name).string();
    std::error_code error;
    const std::uintmax_t size = fs::file_size(shard.path, error);
    std::vector<std::uint8_t> header(k_shard_header_bytes);
    std::ifstream file(shard.path, std::ios::binary);
    file.read(reinterpret_cast<char*>(header.data()), k_shard_header_bytes);
    if (error) {
      throw DataError(fmt::format("{}: cannot read this shard of the token set: {}", shard.path,
                                  error.message()));
    }
    header.resize(static_cast<std::size_t>(file.gcount()));
    shard.header = parse_shard_header(shard.path, header, size);
    if (shard.header.rows != number(entry, "rows", UINT64_MAX) ||
        hex(shard.header.digest) != text(entry, "digest") || shard.header.length != set.length ||
        shard.header.vocabulary != set.vocabulary) {
      throw DataError(fmt::format("{}: is not the shard that {} says; it is of another token set, "
                                  "{}",
                                  shard.path, k_manifest, k_again));
    }
    auto tokens = Bytes::map(shard.path, k_shard_header_bytes, shard.header.payload());
    if (!tokens) {
      throw DataError(fmt::format("{}: cannot map this shard of the token set", shard.path));
    }
    shard.tokens = std::move(*tokens);
    return shard;
  }

  std::string folder_;
  std::string path_;
};

TokenSet open_token_set(const std::string& folder) { return ManifestReader(folder).read(); }

TokenSetWriter::TokenSetWriter(std::string folder, const Options& options)
    : folder_(std::move(folder)), options_(options),
      token_bytes_(options.vocabulary <= UINT16_MAX + std::size_t{1} ? 2 : 4),
      halves_{{.name = k_train_rows, .tokens = {}, .manifest = {}},
              {.name = k_held_out_rows, .tokens = {}, .manifest = {}}} {
  make_folder(folder_);
  std::error_code error;
  fs::remove(manifest_path(folder_),
             error); // The manifest goes first: without it, there is no set of shards.
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tokens")) {
      fs::remove(entry.path(), error);
    }
  }
}

void TokenSetWriter::add(std::span<const TokenId> row) {
  const auto numbered = static_cast<double>(rows_++);
  const bool is_held_out = std::uint64_t((numbered + 1) * options_.held_out) !=
                           std::uint64_t(numbered * options_.held_out);
  Half& half = halves_[is_held_out ? 1 : 0];
  for (std::size_t i = 0; i < options_.length; ++i) {
    const auto token = static_cast<std::uint32_t>(i < row.size() ? row[i] : options_.special.pad);
    for (std::uint32_t byte = 0; byte < token_bytes_; ++byte) {
      half.tokens.push_back(static_cast<std::uint8_t>(token >> (8 * byte)));
    }
  }
  ++half.rows;
  ++half.shard_rows;
  if (half.tokens.size() + options_.length * token_bytes_ > options_.shard_bytes) {
    write_shard(half);
  }
}

void TokenSetWriter::write_shard(Half& half) {
  ShardHeader header;
  header.token_bytes = token_bytes_;
  header.length = static_cast<std::uint32_t>(options_.length);
  header.rows = std::exchange(half.shard_rows, 0);
  header.vocabulary = static_cast<std::uint32_t>(options_.vocabulary);
  header.digest = xxh64(half.tokens, 0);
  const auto number = std::count(half.manifest.begin(), half.manifest.end(), '{');
  const std::string name = fmt::format("{}-{:05}.tokens", half.name, number);
  AtomicFile file((fs::path(folder_) / name).string());
  const std::vector<std::uint8_t> start = shard_header_bytes(header);
  file.write(std::as_bytes(std::span(start)));
  file.write(std::as_bytes(std::span(half.tokens)));
  file.commit();
  half.manifest += fmt::format("{}\n    {{\"file\": \"{}\", \"rows\": {}, \"digest\": \"{}\"}}",
                               number == 0 ? "" : ",", name, header.rows, hex(header.digest));
  ++files_;
  bytes_ += k_shard_header_bytes + half.tokens.size();
  half.tokens.clear();
}

void TokenSetWriter::finish() {
  for (Half& half : halves_) {
    if (!half.tokens.empty()) {
      write_shard(half);
    }
  }
  const SpecialTokens& special = options_.special;
  const std::string text = fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"length\": {},\n  \"vocabulary\": {},\n"
      "  \"packed\": {},\n  \"pad\": {},\n  \"unknown\": {},\n  \"first\": {},\n  \"last\": {},\n"
      "  \"mask\": {},\n  \"{}\": [{}],\n  \"{}\": [{}]\n}}\n",
      k_format, options_.length, options_.vocabulary, options_.is_packed ? 1 : 0, special.pad,
      special.unknown, special.first, special.last, special.mask, halves_[0].name,
      halves_[0].manifest, halves_[1].name, halves_[1].manifest);
  AtomicFile file(manifest_path(folder_));
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

} // namespace trainer
