#include "trainer/text/byte_bpe.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <queue>

#include <fmt/format.h>

#include "submit/errors.h"
#include "submit/options/utf8.h"
#include "trainer/errors.h"
#include "trainer/json_file.h"
#include "trainer/text/tokenizer_json.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

const std::array<std::string, 5> k_bpe_special = {"<pad>", "<unk>", "<s>", "</s>", "<mask>"};

enum class BytePieceKind { letter, number, space, other };

BytePieceKind kind_of(char32_t c) {
  if (c < 0x80) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter                              ? BytePieceKind::letter
           : c >= '0' && c <= '9'                 ? BytePieceKind::number
           : c == ' ' || (c >= '\t' && c <= '\r') ? BytePieceKind::space
                                                  : BytePieceKind::other;
  }
  return unicode::is_letter(c)        ? BytePieceKind::letter
         : unicode::is_number(c)      ? BytePieceKind::number
         : unicode::is_white_space(c) ? BytePieceKind::space
                                      : BytePieceKind::other;
}

Vocabulary read_bpe_tokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto content = parse_shallow_json(file);
  if (!file && !file.eof()) {
    throw DataError(fmt::format("{}: cannot read the vocabulary", path));
  }
  return numbered_tokens(content, path);
}

std::uint64_t pair_of(TokenId a, TokenId b) {
  return static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
}

} // namespace

const std::array<char32_t, 256>& byte_letters() {
  static const auto letters = [] {
    std::array<char32_t, 256> made{};
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool shows = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      made[byte] = shows ? byte : next++;
    }
    return made;
  }();
  return letters;
}

std::size_t byte_bpe_piece(std::string_view text) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(contraction)) {
      return contraction.size();
    }
  }
  const auto run = [&](std::size_t from, BytePieceKind kind) { // Where it ends.
    while (from < text.size()) {
      const dtrain::Utf8Char c = dtrain::decode_utf8(text.substr(from));
      if (kind_of(c.code) != kind) {
        break;
      }
      from += std::max<std::size_t>(c.length, 1);
    }
    return from;
  };
  if (text.empty()) {
    return 0;
  }
  const std::size_t space = text.front() == ' ' ? 1 : 0;
  if (space < text.size()) {
    const BytePieceKind kind = kind_of(dtrain::decode_utf8(text.substr(space)).code);
    if (kind != BytePieceKind::space) {
      return run(space, kind);
    }
  }
  // White space: all of it at the end of the text, else all but the last.
  const std::size_t end = run(0, BytePieceKind::space);
  if (end == text.size()) {
    return end;
  }
  std::size_t last = end - 1;
  while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80U) {
    --last;
  }
  return last > 0 ? last : end;
}

const std::vector<std::string>& byte_bpe_special_names(bool is_roberta) {
  static const std::vector<std::string> roberta = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  static const std::vector<std::string> gpt2 = {k_gpt2_special};
  return is_roberta ? roberta : gpt2;
}

ByteBpe::ByteBpe(const std::string& vocabulary_path, const std::string& merges_path)
    : Tokenizer(read_bpe_tokens(vocabulary_path), vocabulary_path, k_bpe_special, true,
                k_gpt2_special) {
  number_bytes(vocabulary_path);
  read_merges(merges_path);
}

ByteBpe::ByteBpe(Vocabulary vocabulary, const Merges& merges, const std::string& path)
    : Tokenizer(std::move(vocabulary), path, k_bpe_special, true, k_gpt2_special) {
  number_bytes(path);
  for (const auto& [first, second] : merges) {
    if (!add_merge(first, second)) {
      throw DataError(
          fmt::format("{}: {} {} is not a pair of tokens whose merge is in the vocabulary", path,
                      dtrain::printable(first), dtrain::printable(second)));
    }
  }
}

void ByteBpe::number_bytes(const std::string& path) {
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    std::string letter;
    unicode::append_utf8(byte_letters()[byte], letter);
    const auto id = vocabulary().find(letter);
    if (!id) {
      throw DataError(fmt::format("{}: has no token {} for the byte {}; the vocabulary of a "
                                  "byte-level BPE has all 256",
                                  path, letter, byte));
    }
    bytes_[byte] = *id;
  }
}

bool ByteBpe::add_merge(std::string_view first, std::string_view second) {
  const auto left = vocabulary().find(first);
  const auto right = vocabulary().find(second);
  const auto both = vocabulary().find(std::string(first).append(second));
  if (!left || !right || !both) {
    return false;
  }
  merges_.try_emplace(pair_of(*left, *right),
                      Merge{static_cast<std::uint32_t>(merges_.size()), *both});
  return true;
}

void ByteBpe::read_merges(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw DataError(fmt::format("{}: cannot read the merges of the vocabulary: {}", path,
                                std::strerror(errno)));
  }
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.starts_with("#version") || line.empty()) {
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || !add_merge(std::string_view(line).substr(0, space),
                                                 std::string_view(line).substr(space + 1))) {
      throw DataError(
          fmt::format("{}, line {}: {} is not a pair of tokens whose merge is in the vocabulary",
                      path, number, dtrain::printable(line)));
    }
  }
}

void ByteBpe::encode_plain(std::string_view text, std::vector<TokenId>& to) {
  const auto cut = [this](std::string_view piece, std::vector<TokenId>& ids) {
    encode_piece(piece, ids);
  };
  while (!text.empty()) {
    const std::size_t size = byte_bpe_piece(text);
    encode_remembered(text.substr(0, size), to, cut);
    text.remove_prefix(size);
  }
}

void ByteBpe::encode_piece(std::string_view piece, std::vector<TokenId>& to) const {
  // A list of tokens in place: a merge takes its right neighbour out. Candidates wait by rank, then
  // position; one whose tokens have changed meanwhile is passed over.
  struct Part {
    TokenId id;
    std::int32_t before;
    std::int32_t after;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    std::uint64_t pair;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto size = static_cast<std::int32_t>(piece.size());
  std::vector<Part> parts(piece.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto part = [&](std::int32_t at) -> Part& { return parts[static_cast<std::size_t>(at)]; };
  const auto consider = [&](std::int32_t at) {
    if (at < 0 || part(at).after >= size) {
      return;
    }
    const std::uint64_t pair = pair_of(part(at).id, part(part(at).after).id);
    if (const auto found = merges_.find(pair); found != merges_.end()) {
      candidates.push({found->second.rank, at, pair});
    }
  };
  for (std::int32_t i = 0; i < size; ++i) {
    part(i) = {bytes_[static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])], i - 1,
               i + 1};
  }
  for (std::int32_t i = 0; i < size; ++i) {
    consider(i);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& left = part(best.at);
    if (left.id < 0 || left.after >= size || pair_of(left.id, part(left.after).id) != best.pair) {
      continue;
    }
    Part& right = part(left.after);
    left.id = merges_.find(best.pair)->second.id;
    left.after = right.after;
    right.id = -1;
    if (left.after < size) {
      part(left.after).before = best.at;
    }
    consider(left.before);
    consider(best.at);
  }
  for (std::int32_t i = 0; i < size; i = part(i).after) {
    to.push_back(part(i).id);
  }
}

std::string ByteBpe::decode(std::span<const TokenId> ids) const {
  static const auto bytes = [] {
    std::unordered_map<char32_t, char> made;
    for (std::size_t byte = 0; byte < byte_letters().size(); ++byte) {
      made[byte_letters()[byte]] = static_cast<char>(byte);
    }
    return made;
  }();
  std::string text;
  for (const TokenId id : ids) {
    if (is_special(id)) {
      continue;
    }
    const std::string& token = vocabulary().token(id);
    std::u32string letters;
    unicode::decode(token, letters);
    const bool is_bytes =
        is_of_model(id) && std::all_of(letters.begin(), letters.end(),
                                       [](char32_t letter) { return bytes.contains(letter); });
    if (!is_bytes) { // An added token, which stands for itself.
      text += token;
      continue;
    }
    for (const char32_t letter : letters) {
      text += bytes.find(letter)->second;
    }
  }
  return text;
}

} // namespace trainer
