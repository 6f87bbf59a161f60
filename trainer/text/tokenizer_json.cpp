#include "trainer/text/tokenizer_json.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/json_file.h"

namespace trainer {
namespace {

using Json = nlohmann::json;

constexpr std::size_t k_most_entries = 1 << 24; ///< Of a vocabulary and of its merges.

/// A token, which may be empty, for a message.
std::string shown(const std::string& token) {
  return token.empty() ? "''" : dtrain::printable(token);
}

class TokenizerReader {
 public:
  explicit TokenizerReader(const std::string& path) : path_(path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw DataError(
          fmt::format("{}: cannot read the vocabulary: {}", path, std::strerror(errno)));
    }
    content_ = parse_shallow_json(file);
    if (!part("model").is_object()) {
      damaged("has no \"model\" of a tokenizer; give tokenizer.json, or vocab.json with merges.txt "
              "beside it");
    }
  }

  TokenizerJson read() const {
    const Json& model = part("model");
    const auto is_a = [&](const char* type, const char* key) { // Older files have no type.
      return is(model, "type", type) || (at(model, "type").is_null() && model.contains(key));
    };
    const bool is_bpe = is_a("BPE", "merges");
    if (!is_bpe && !is_a("WordPiece", "max_input_chars_per_word")) {
      refuse("model", model);
    }
    TokenizerJson found;
    found.is_bpe = is_bpe;
    found.vocabulary = numbered_tokens(numbers(), path_);
    found.added = added(found.vocabulary);
    if (is_bpe) {
      check_is_byte_level();
      found.merges = merges();
    } else {
      check_is_berts(found.vocabulary);
      found.options = options();
    }
    return found;
  }

 private:
  /// Of an object, null where there is none.
  static const Json& at(const Json& object, const char* key) {
    static const Json none;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? none : *found;
  }
  const Json& part(const char* key) const { return at(content_, key); }
  static bool is(const Json& object, const char* key, const Json& value) {
    return at(object, key) == value;
  }

  [[noreturn]] void refuse(const char* key, const Json& value) const {
    const Json& type = value.is_object() ? at(value, "type") : value;
    throw DataError(fmt::format(
        "{}: has the {} {}; WordPiece as BERT has it and byte-level BPE as GPT-2 and RoBERTa have "
        "it can be read",
        path_, key, dtrain::printable(type.is_string() ? type.get<std::string>() : type.dump())));
  }
  [[noreturn]] void damaged(const std::string& what) const {
    throw DataError(fmt::format("{}: {}", path_, what));
  }

  /// Those of the model, and of tokens that were added to it.
  Json numbers() const {
    Json all = at(part("model"), "vocab");
    const Json& added = part("added_tokens");
    if (!all.is_object() || !(added.is_null() || added.is_array())) {
      damaged("\"vocab\" of its model must be an object, and \"added_tokens\" a list");
    }
    for (const Json& token : added) {
      const Json& name = at(token, "content");
      if (!name.is_string()) {
        damaged("an added token has no \"content\"");
      }
      const Json& id = at(token, "id");
      const auto& [known, is_new] = all.emplace(name.get<std::string>(), id);
      if (!is_new && *known != id) {
        damaged(fmt::format("the added token {} has the number {}, and {} in the vocabulary of its "
                            "model",
                            shown(name.get<std::string>()), dtrain::printable(id.dump()),
                            dtrain::printable(known->dump())));
      }
    }
    return all;
  }

  /// `vocabulary`: with them.
  std::vector<AddedToken> added(const Vocabulary& vocabulary) const {
    std::vector<AddedToken> found;
    for (const Json& token : part("added_tokens")) {
      AddedToken one;
      one.content = at(token, "content").get<std::string>();
      one.id = *vocabulary.find(one.content);
      one.is_of_model = at(part("model"), "vocab").contains(one.content);
      const std::string what = fmt::format("the added token {}", shown(one.content));
      read_flag(token, "special", what, one.special);
      one.normalized = !one.special;
      read_flag(token, "normalized", what, one.normalized);
      read_flag(token, "single_word", what, one.single_word);
      read_flag(token, "lstrip", what, one.lstrip);
      read_flag(token, "rstrip", what, one.rstrip);
      found.push_back(std::move(one));
    }
    return found;
  }

  /// Where `object`, which is `what`, has it.
  template <typename Flag>
  void read_flag(const Json& object, const char* key, const std::string& what, Flag& to) const {
    const Json& value = at(object, key);
    if (!value.is_null() && !value.is_boolean()) {
      damaged(fmt::format("\"{}\" of {} must be true or false", key, what));
    }
    if (value.is_boolean()) {
      to = value.get<bool>();
    }
  }

  Merges merges() const {
    const Json& all = at(part("model"), "merges");
    if (!all.is_array() || all.size() > k_most_entries) {
      damaged("\"merges\" of its model must be a list of pairs of tokens");
    }
    Merges found;
    for (const Json& merge : all) {
      found.push_back(pair_in(merge));
    }
    return found;
  }

  /// "a b", as `tokenizers` wrote it before 0.20, or ["a", "b"].
  std::pair<std::string, std::string> pair_in(const Json& merge) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    const std::string both = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = both.find(' ');
    if (space == std::string::npos) {
      damaged(fmt::format("the merge {} is no pair of tokens", dtrain::printable(merge.dump())));
    }
    return {both.substr(0, space), both.substr(space + 1)};
  }

  void check_is_byte_level() const {
    const Json& cut = part("pre_tokenizer");
    if (!is(cut, "type", "ByteLevel") || is(cut, "use_regex", false)) {
      refuse("pre_tokenizer", cut);
    }
    if (is(cut, "add_prefix_space", true)) {
      damaged("has \"add_prefix_space\": true, which this program cannot do");
    }
    if (!part("normalizer").is_null()) {
      refuse("normalizer", part("normalizer"));
    }
  }

  void check_is_berts(const Vocabulary& vocabulary) const {
    const Json& cut = part("pre_tokenizer");
    if (!is(cut, "type", "BertPreTokenizer")) {
      refuse("pre_tokenizer", cut);
    }
    const Json& prefix = at(part("model"), "continuing_subword_prefix");
    if (prefix != "##") {
      refuse("continuing_subword_prefix", prefix);
    }
    for (const std::string& token : vocabulary.tokens()) {
      if (token.find('\n') != std::string::npos) { // It could not be kept in a vocab.txt.
        damaged(fmt::format("the token {} has an end of line in it", dtrain::printable(token)));
      }
    }
  }

  TokenizerOptions options() const {
    const Json& normalizer = part("normalizer");
    if (normalizer.is_null()) {
      return {.lowercase = false, .strip_accents = false, .clean = false, .split_cjk = false};
    }
    if (!is(normalizer, "type", "BertNormalizer")) {
      refuse("normalizer", normalizer);
    }
    TokenizerOptions found;
    const std::string what = "its normalizer";
    read_flag(normalizer, "lowercase", what, found.lowercase);
    read_flag(normalizer, "strip_accents", what, found.strip_accents);
    read_flag(normalizer, "clean_text", what, found.clean);
    read_flag(normalizer, "handle_chinese_chars", what, found.split_cjk);
    return found;
  }

  std::string path_;
  Json content_;
};

} // namespace

TokenizerJson read_tokenizer_json(const std::string& path) { return TokenizerReader(path).read(); }

Vocabulary numbered_tokens(const nlohmann::json& numbers, const std::string& path) {
  if (!numbers.is_object() || numbers.empty() || numbers.size() > k_most_entries) {
    throw DataError(fmt::format(
        "{}: is not a vocabulary; it must be a JSON object of tokens and their numbers", path));
  }
  std::vector<std::string> tokens(numbers.size());
  std::vector<bool> is_taken(numbers.size()); // A token may be empty.
  for (const auto& [token, number] : numbers.items()) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() >= tokens.size()) {
      throw DataError(fmt::format("{}: token {} has the number {}; {} tokens are numbered 0 to {}",
                                  path, shown(token), dtrain::printable(number.dump()),
                                  tokens.size(), tokens.size() - 1));
    }
    const auto id = number.get<std::size_t>();
    if (is_taken[id]) {
      throw DataError(fmt::format("{}: tokens {} and {} both have the number {}", path,
                                  shown(tokens[id]), shown(token), id));
    }
    tokens[id] = token;
    is_taken[id] = true;
  }
  return Vocabulary(std::move(tokens));
}

} // namespace trainer
