#include "trainer/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/json_file.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/tokenizer_json.h"
#include "trainer/text/word_piece.h"

namespace trainer {

Tokenizer::Tokenizer(Vocabulary vocabulary, const std::string& path,
                     std::array<std::string, 5> names, bool strips, const std::string& only)
    : vocabulary_(std::move(vocabulary)) {
  if (!vocabulary_.find(names.back()) && vocabulary_.find(only)) {
    names.fill(only);
    strips = false;
  }
  std::vector<AddedToken> special;
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
    const bool is_mask = i + 1 == names.size();
    special.push_back(
        {.content = names[i], .id = *id, .lstrip = strips && is_mask, .special = true});
    added_[*id] = special.back();
  }
  raw_ = AddedTokens(std::move(special));
}

void Tokenizer::add(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    added_[token.id] = token;
  }
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normal;
  for (const auto& entry : added_) {
    AddedToken token = entry.second;
    if (token.normalized) {
      token.content = std::string(normalised(token.content));
    }
    (token.normalized ? normal : raw).push_back(std::move(token));
  }
  raw_ = AddedTokens(std::move(raw));
  normalised_ = AddedTokens(std::move(normal));
}

bool Tokenizer::is_of_model(TokenId id) const {
  const auto found = added_.find(id);
  return found == added_.end() || found->second.is_of_model;
}

bool Tokenizer::is_special(TokenId id) const {
  const auto found = added_.find(id);
  return special_.contains(id) || (found != added_.end() && found->second.special);
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& to) {
  const auto found = [&](TokenId id) { to.push_back(id); };
  const auto plain = [&](std::string_view between) { encode_plain(between, to); };
  raw_.split(
      text,
      [&](std::string_view between) {
        normalised_.empty() ? plain(between) : normalised_.split(normalised(between), plain, found);
      },
      found);
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* k_config = "tokenizer_config.json";
constexpr const char* k_word_piece = "vocab.txt";
constexpr const char* k_bpe = "vocab.json";
constexpr const char* k_merges = "merges.txt";
constexpr const char* k_whole = "tokenizer.json";

/// The files of a tokenizer; `path` is its folder or its vocabulary.
struct TokenizerFiles {
  explicit TokenizerFiles(const std::string& path) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
    const auto has = [&](const char* name) { return fs::exists(folder / name, error); };
    const bool has_bpe = has(k_bpe) && has(k_merges);
    if (!is_folder) {
      vocabulary = fs::path(path);
    } else if (has(k_word_piece) || !(has(k_bpe) || has(k_whole))) {
      vocabulary = folder / k_word_piece;
    } else {
      vocabulary = folder / (has_bpe || !has(k_whole) ? k_bpe : k_whole);
    }
    // A file of `tokenizers` may have any name.
    const bool is_json = vocabulary.extension() == ".json";
    is_whole = is_json && vocabulary.filename() != k_bpe &&
               (vocabulary.filename() == k_whole || !has(k_merges));
    if (is_json && !is_whole) {
      merges = folder / k_merges;
    }
  }

  /// The vocabulary's name in a folder.
  const char* name() const { return is_whole ? k_whole : merges.empty() ? k_word_piece : k_bpe; }

  fs::path folder;
  fs::path vocabulary;
  fs::path merges;       ///< Only of a BPE.
  bool is_whole = false; ///< The vocabulary is a tokenizer.json.
};

/// `options`: of what the file leaves out.
TokenizerOptions read_options(const fs::path& path, TokenizerOptions options = {}) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return options;
  }
  const Json config = parse_shallow_json(file);
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

std::string read_file(const fs::path& path) {
  const InputFile file(path.string());
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The names of a vocabulary's files in a folder, and their contents.
using FileTexts = std::map<std::string, std::string>;

/// Among a WordPiece's files; a tokenizer.json's own are what `tokenizers` reads.
void set_options(const TokenizerOptions& options, FileTexts& files) {
  const Json strips = options.strip_accents ? Json(*options.strip_accents) : Json();
  const Json config = {{"tokenizer_class", "BertTokenizer"},
                       {"do_lower_case", options.lowercase},
                       {"strip_accents", strips},
                       {"tokenize_chinese_chars", options.split_cjk}};
  files[k_config] = config.dump(2) + "\n";
  if (const auto whole = files.find(k_whole); whole != files.end()) {
    Json content = parse_shallow_json(whole->second);
    content["normalizer"] = {{"type", "BertNormalizer"},
                             {"clean_text", options.clean},
                             {"handle_chinese_chars", options.split_cjk},
                             {"strip_accents", strips},
                             {"lowercase", options.lowercase}};
    whole->second = content.dump(2) + "\n";
  }
}

/// Those of `files` that the folder has otherwise, or not at all.
FileTexts changes(const FileTexts& files, const fs::path& folder) {
  FileTexts changed;
  std::copy_if(files.begin(), files.end(), std::inserter(changed, changed.end()),
               [&](const auto& file) {
                 std::error_code error;
                 return !fs::exists(folder / file.first, error) ||
                        read_file(folder / file.first) != file.second;
               });
  return changed;
}

void write_all(const FileTexts& files, const fs::path& folder) {
  for (const auto& [name, text] : files) {
    AtomicFile file((folder / name).string());
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }
}

/// Removes what would be read before the vocabulary of these files, or contradicts it.
void remove_all_but(const FileTexts& files, const fs::path& folder) {
  for (const char* name : {k_word_piece, k_bpe, k_merges, k_whole, k_config}) {
    std::error_code error;
    if (!files.contains(name)) {
      fs::remove(folder / name, error);
    }
    if (error) {
      throw Error(fmt::format("{}: cannot remove this file of an older vocabulary: {}",
                              (folder / name).string(), error.message()));
    }
  }
}

/// The only files of a vocabulary in the folder then.
void save(const FileTexts& files, const std::string& folder) {
  make_folder(folder);
  write_all(files, folder);
  remove_all_but(files, folder);
}

} // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path,
                                          const std::optional<TokenizerOptions>& options) {
  const TokenizerFiles files(path);
  if (files.is_whole) {
    TokenizerJson content = read_tokenizer_json(files.vocabulary.string());
    if (content.is_bpe) {
      auto tokenizer = std::make_unique<ByteBpe>(std::move(content.vocabulary), content.merges,
                                                 files.vocabulary.string());
      tokenizer->add(content.added);
      return tokenizer;
    }
    auto tokenizer = std::make_unique<WordPiece>(
        std::move(content.vocabulary), files.vocabulary.string(),
        options ? *options : read_options(files.folder / k_config, content.options));
    tokenizer->add(content.added);
    return tokenizer;
  }
  if (!files.merges.empty()) {
    return std::make_unique<ByteBpe>(files.vocabulary.string(), files.merges.string());
  }
  return std::make_unique<WordPiece>(files.vocabulary.string(),
                                     options ? *options : read_options(files.folder / k_config));
}

void copy_tokenizer(const std::string& path, const std::string& folder,
                    const std::optional<TokenizerOptions>& options) {
  const TokenizerFiles from(path);
  std::error_code error;
  if (!fs::exists(from.vocabulary, error)) {
    return;
  }
  FileTexts files;
  for (const auto& [file, name] :
       {std::pair(from.vocabulary, from.name()), std::pair(from.merges, k_merges),
        std::pair(from.folder / k_config, k_config)}) {
    if (!file.empty() && fs::exists(file, error)) {
      files[name] = read_file(file);
    }
  }
  if (options) {
    set_options(*options, files);
  }
  make_folder(folder);
  const fs::path to = folder;
  const FileTexts changed = changes(files, to);
  const bool is_own = fs::equivalent(fs::absolute(from.vocabulary).parent_path(), to, error);
  for (const auto& [name, text] : changed) {
    if (is_own && fs::exists(to / name, error)) {
      throw UsageError(fmt::format("--output={}: would overwrite {} beside --vocabulary; give "
                                   "another folder",
                                   folder, name));
    }
  }
  write_all(changed, to);
  // Beside the same vocabulary they are the user's.
  const bool is_same = changed.empty() && TokenizerFiles(folder).vocabulary == to / from.name() &&
                       (files.contains(k_config) || !fs::exists(to / k_config, error));
  if (!is_own && !is_same) {
    remove_all_but(files, to);
  }
}

void save_word_piece(const std::vector<std::string>& tokens, const TokenizerOptions& options,
                     const std::string& folder) {
  FileTexts files = {{k_word_piece, fmt::format("{}\n", fmt::join(tokens, "\n"))}};
  set_options(options, files);
  save(files, folder);
}

void save_byte_bpe(const std::vector<std::string>& tokens, const Merges& merges,
                   const std::string& folder) {
  std::string numbers; // In order, as other programs write them.
  TokenId id = 0;
  for (const std::string& token : tokens) {
    numbers += fmt::format("{}{}:{}", numbers.empty() ? "" : ",", Json(token).dump(), id++);
  }
  std::string lines = "#version: 0.2\n";
  for (const auto& [left, right] : merges) {
    lines += fmt::format("{} {}\n", left, right);
  }
  Json config = {{"tokenizer_class", "GPT2Tokenizer"},
                 {"add_prefix_space", false},
                 {"bos_token", k_gpt2_special},
                 {"eos_token", k_gpt2_special},
                 {"unk_token", k_gpt2_special}};
  if (tokens.front() != k_gpt2_special) {
    config = {{"tokenizer_class", "RobertaTokenizer"},
              {"add_prefix_space", false},
              {"bos_token", "<s>"},
              {"cls_token", "<s>"},
              {"eos_token", "</s>"},
              {"sep_token", "</s>"},
              {"pad_token", "<pad>"},
              {"unk_token", "<unk>"},
              {"mask_token", "<mask>"}};
  }
  save({{k_bpe, "{" + numbers + "}"}, {k_merges, lines}, {k_config, config.dump(2) + "\n"}},
       folder);
}

} // namespace trainer
