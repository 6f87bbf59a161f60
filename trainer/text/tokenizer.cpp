#include "trainer/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/word_piece.h"

namespace trainer {

Tokenizer::Tokenizer(Vocabulary vocabulary, const std::string& path,
                     std::array<std::string, 5> names, bool strips, const std::string& only)
    : vocabulary_(std::move(vocabulary)), strips_(strips) {
  if (!vocabulary_.find(names.back()) && vocabulary_.find(only)) {
    names.fill(only);
    strips_ = false;
  }
  const std::array<TokenId*, 5> ids = {&special_.pad, &special_.unknown, &special_.first,
                                       &special_.last, &special_.mask};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto id = vocabulary_.find(names[i]);
    if (!id) {
      throw DataError(fmt::format("{}: has no {} among its {} tokens; a masked language model "
                                  "needs {}",
                                  path, names[i], vocabulary_.size(), fmt::join(names, ", ")));
    }
    *ids[i] = *id;
    names_.emplace_back(names[i], *id);
  }
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& to) {
  const char first = names_.front().first.front(); // The first character of all names.
  for (std::size_t at = 0; (at = text.find(first, at)) != std::string_view::npos;) {
    const auto found = std::find_if(names_.begin(), names_.end(), [&](const auto& name) {
      return text.substr(at).starts_with(name.first);
    });
    if (found == names_.end()) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(0, at);
    if (strips_ && found->second == special_.mask) {
      before = before.substr(0, before.find_last_not_of(" \t\n\r\v\f") + 1);
    }
    encode_plain(before, to);
    to.push_back(found->second);
    text.remove_prefix(at + found->first.size());
    at = 0;
  }
  encode_plain(text, to);
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* k_config = "tokenizer_config.json";

/// The files of a tokenizer; `path` is its folder or its vocabulary.
struct TokenizerFiles {
  explicit TokenizerFiles(const std::string& path) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
    const bool is_bpe = is_folder ? fs::exists(folder / "vocab.json", error) &&
                                        !fs::exists(folder / "vocab.txt", error)
                                  : path.ends_with(".json");
    vocabulary = is_folder ? folder / (is_bpe ? "vocab.json" : "vocab.txt") : fs::path(path);
    if (is_bpe) {
      merges = folder / "merges.txt";
    }
  }

  fs::path folder;
  fs::path vocabulary;
  fs::path merges; ///< Only of a BPE.
};

TokenizerOptions read_options(const fs::path& path) {
  TokenizerOptions options;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return options;
  }
  const Json config = Json::parse(file, nullptr, false);
  if (!config.is_object()) {
    throw DataError(fmt::format("{}: is not a JSON object", path.string()));
  }
  const auto read = [&](const char* key, auto& to) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null()) {
      if (!found->is_boolean()) {
        throw DataError(fmt::format("{}: \"{}\" must be true or false", path.string(), key));
      }
      to = found->template get<bool>();
    }
  };
  read("do_lower_case", options.lowercase);
  read("strip_accents", options.strip_accents);
  read("tokenize_chinese_chars", options.split_cjk);
  return options;
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path.string());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

} // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path,
                                          const std::optional<TokenizerOptions>& options) {
  const TokenizerFiles files(path);
  if (!files.merges.empty()) {
    return std::make_unique<ByteBpe>(files.vocabulary.string(), files.merges.string());
  }
  return std::make_unique<WordPiece>(files.vocabulary.string(),
                                     options ? *options : read_options(files.folder / k_config));
}

void copy_tokenizer(const std::string& path, const std::string& folder) {
  const TokenizerFiles files(path);
  make_folder(folder);
  std::error_code error;
  for (const auto& [from, name] :
       {std::pair(files.vocabulary, files.merges.empty() ? "vocab.txt" : "vocab.json"),
        std::pair(files.merges, "merges.txt"), std::pair(files.folder / k_config, k_config)}) {
    const fs::path to = fs::path(folder) / name;
    if (!from.empty() && fs::exists(from, error) && !fs::equivalent(from, to, error)) {
      std::ifstream file(from, std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      write_file(to, text.str());
    }
  }
}

void save_word_piece(const std::vector<std::string>& tokens, const TokenizerOptions& options,
                     const std::string& folder) {
  make_folder(folder);
  std::string text;
  for (const std::string& token : tokens) {
    text += token + "\n";
  }
  write_file(fs::path(folder) / "vocab.txt", text);
  const Json strips = options.strip_accents ? Json(*options.strip_accents) : Json();
  const Json config = {{"tokenizer_class", "BertTokenizer"},
                       {"do_lower_case", options.lowercase},
                       {"strip_accents", strips},
                       {"tokenize_chinese_chars", options.split_cjk}};
  write_file(fs::path(folder) / k_config, config.dump(2) + "\n");
}

} // namespace trainer
