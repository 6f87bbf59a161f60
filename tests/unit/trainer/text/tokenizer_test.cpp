#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/train_vocabulary.h"
#include "trainer/text/unicode.h"

using namespace trainer;

namespace {

const std::vector<std::string> k_words = {"[PAD]", "[UNK]",  "[CLS]", "[SEP]", "[MASK]", "un",
                                          "##aff", "##able", "a",     "##b",   "!",      "中"};

std::vector<std::string> tokens_of(Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    tokens.push_back(tokenizer.vocabulary().token(id));
  }
  return tokens;
}

using Words = std::vector<std::string>;

} // namespace

TEST_CASE("word piece takes the longest pieces, and a word that can't be cut is unknown") {
  const TempFolder folder;
  save_word_piece(k_words, {}, folder.path());
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokens_of(*tokenizer, "Unaffable  UN!ab") ==
        Words{"un", "##aff", "##able", "un", "!", "a", "##b"});
  CHECK(tokens_of(*tokenizer, "unaffablex a") == Words{"[UNK]", "a"});
  CHECK(tokens_of(*tokenizer, "a中a") == Words{"a", "中", "a"});
  CHECK(tokens_of(*tokenizer, "") == Words{});
}

TEST_CASE("the name of a special token in a text is that token, wherever it stands") {
  const TempFolder folder;
  save_word_piece(k_words, {}, folder.path());
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokens_of(*tokenizer, "un[MASK]a [SEP]") == Words{"un", "[MASK]", "a", "[SEP]"});
  CHECK(tokens_of(*tokenizer, "[MASK") == Words{"[UNK]", "[UNK]"});
  std::vector<TokenId> ids;
  tokenizer->encode("Unaffable [MASK] a", ids);
  CHECK(tokenizer->decode(ids) == "unaffable a");
}

TEST_CASE("a tokenizer's folder keeps whether capitals and accents count") {
  const TempFolder folder;
  save_word_piece({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "É", "e"}, {.lowercase = false},
                  folder.path());
  CHECK(tokens_of(*load_tokenizer(folder.path()), "É é") == Words{"É", "[UNK]"});
  const TempFolder other;
  copy_tokenizer(folder.path(), other.path());
  CHECK(tokens_of(*load_tokenizer(other.path()), "É") == Words{"É"});
  CHECK(tokens_of(*load_tokenizer(folder.path(), TokenizerOptions()), "É é") == Words{"e", "e"});
}

TEST_CASE("a vocabulary that comes into a folder leaves nothing there of the one before") {
  const auto names_in = [](const TempFolder& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  const auto fill = [](const TempFolder& folder) {
    for (const char* name : {"vocab.txt", "vocab.json", "merges.txt", "tokenizer.json",
                             "tokenizer_config.json", "config.json"}) {
      folder.write(name, "old");
    }
  };
  using Names = std::set<std::string>;
  const TempFolder source;
  source.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  const TempFolder made;
  fill(made);
  copy_tokenizer(source / "vocab.txt", made.path());
  CHECK(names_in(made) == Names{"vocab.txt", "config.json"}); // Not the vocabulary's.
  fill(made);
  save_word_piece(k_words, {}, made.path());
  CHECK(names_in(made) == Names{"vocab.txt", "tokenizer_config.json", "config.json"});
  CHECK(load_tokenizer(made.path())->vocabulary().size() == k_words.size());

  source.write("vocab.json", "{}");
  source.write("merges.txt", "");
  source.write("tokenizer_config.json", "{}");
  fill(made);
  copy_tokenizer(source / "vocab.json", made.path());
  CHECK(names_in(made) ==
        Names{"vocab.json", "merges.txt", "tokenizer_config.json", "config.json"});
  source.write("tokenizer.json", "{}");
  fill(made);
  copy_tokenizer(source / "tokenizer.json", made.path());
  CHECK(names_in(made) == Names{"tokenizer.json", "tokenizer_config.json", "config.json"});

  fill(source); // A folder into itself loses nothing, by whatever name.
  const Names before = names_in(source);
  std::filesystem::create_directory_symlink(source.path(), made / "link");
  copy_tokenizer(source / "tokenizer.json", made / "link");
  copy_tokenizer(source.path() + "/./vocab.json", source.path());
  CHECK(names_in(source) == before);
}

TEST_CASE("files beside a vocabulary that is there already stay, as they are the user's") {
  const TempFolder source;
  save_word_piece(k_words, {}, source.path());
  const TempFolder made;
  copy_tokenizer(source.path(), made.path());
  made.write("tokenizer.json", "of another program");
  copy_tokenizer(source.path(), made.path());
  CHECK(read_file(made / "tokenizer.json") == "of another program");

  std::filesystem::remove(source / "tokenizer_config.json"); // The one there contradicts it.
  copy_tokenizer(source.path(), made.path());
  CHECK_FALSE(std::filesystem::exists(made / "tokenizer_config.json"));

  std::filesystem::copy(made / "vocab.txt", made / "vocab.json"); // As if the last copy was cut.
  made.write("merges.txt", "");
  source.write("vocab.json", read_file(made / "vocab.json"));
  source.write("merges.txt", "");
  copy_tokenizer(source / "vocab.json", made.path());
  CHECK_FALSE(std::filesystem::exists(made / "vocab.txt")); // It would be read before.
}

TEST_CASE("a vocabulary is not overwritten by a copy of it that differs") {
  const TempFolder folder;
  save_word_piece(k_words, {}, folder.path());
  const auto check_refused = [&](const std::string& path, const std::string& name,
                                 const std::optional<TokenizerOptions>& options) {
    const std::string before = read_file(folder / name);
    CHECK(message_of<UsageError>([&] { copy_tokenizer(path, folder.path(), options); }) ==
          "--output=" + folder.path() + ": would overwrite " + name +
              " beside --vocabulary; give another folder");
    CHECK(read_file(folder / name) == before);
  };
  check_refused(folder.path(), "tokenizer_config.json", TokenizerOptions{.lowercase = false});
  check_refused(folder.write("other.txt", "[PAD]\n"), "vocab.txt", std::nullopt);
}

TEST_CASE("a file of a vocabulary that cannot be read is not copied as an empty one") {
  const TempFolder source;
  source.write("vocab.json", "{}");
  std::filesystem::create_directories(source / "merges.txt/a"); // As root can read any file.
  const TempFolder made;
  made.write("merges.txt", "old");
  CHECK(contains(message_of<Error>([&] { copy_tokenizer(source / "vocab.json", made.path()); }),
                 source / "merges.txt"));
  CHECK(read_file(made / "merges.txt") == "old");
}

TEST_CASE("a vocabulary without [MASK] is refused, and named") {
  const TempFolder folder;
  const std::string path = folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n");
  const std::string message = message_of<DataError>([&] { load_tokenizer(path); });
  CHECK(contains(message, path));
  CHECK(contains(message, "has no [MASK] among its 5 tokens"));
  CHECK(contains(message_of<DataError>([&] { load_tokenizer(folder / "none"); }),
                 "none: cannot read the vocabulary"));
}

TEST_CASE("byte-level BPE merges by rank, the leftmost first, and gives the text back") {
  const TempFolder folder;
  std::string vocabulary = R"({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4)";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    unicode::append_utf8(byte_letters()[byte], letter);
    vocabulary += ", " + std::string(letter == "\"" || letter == "\\" ? "\"\\" : "\"") + letter +
                  "\": " + std::to_string(byte + 5);
  }
  folder.write("vocab.json", vocabulary + R"(, "aa": 261, "Ġaa": 262, "aaa": 263})");
  folder.write("merges.txt", "#version: 0.2\na a\nĠ aa\naa a\n");
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokens_of(*tokenizer, "aaaaa aab") == Words{"aa", "aaa", "Ġaa", "b"});
  CHECK(tokens_of(*tokenizer, "b  <mask>a's") == Words{"b", "<mask>", "a", "'", "s"});
  const std::string text = "aa  \xc3\xa9\xe4\xb8\xad\t\n 1b";
  std::vector<TokenId> ids;
  tokenizer->encode(text, ids);
  CHECK(tokenizer->decode(ids) == text);

  folder.write("merges.txt", "a a\nb a\n");
  CHECK(contains(message_of<DataError>([&] { load_tokenizer(folder.path()); }),
                 "merges.txt, line 2: b a is not a pair of tokens"));
  folder.write("vocab.json", R"({"a": 0, "b": 7})");
  CHECK(contains(message_of<DataError>([&] { load_tokenizer(folder.path()); }),
                 "token b has the number 7"));
}

TEST_CASE("a byte-level BPE is made of the most frequent pairs, of equal ones the least numbers") {
  ByteBpeTrainer trainer(byte_bpe_special_names(false));
  CHECK(trainer.has_read_none());
  trainer.read("low low lower\n");
  trainer.read("aaaa aaa\n");
  const ByteBpeVocabulary made = trainer.train({.size = 1000});
  // "low", 2 x "Ġlow", with "er", "aaaa", "Ġaaa": aa 5 times; then lo, ow 3 each, of which l is
  // less.
  const Merges expected = {{"a", "a"}, {"l", "o"}, {"lo", "w"}, {"Ġ", "low"}};
  CHECK(made.merges == expected);
  REQUIRE(made.tokens.size() == 1 + ByteBpeTrainer::k_bytes + 4);
  CHECK(made.tokens.front() == "<|endoftext|>");
  CHECK(made.tokens[1] == "!");
  CHECK(made.tokens[256] == "Ń"); // The byte 0xAD, whose letter is the last of all.
  CHECK(made.tokens[257] == "aa");
  CHECK(made.tokens.back() == "Ġlow");
  CHECK(trainer.train({.size = 259}).merges.size() == 2);
  CHECK(trainer.train({.size = 1000, .least = 4}).merges == Merges{{"a", "a"}});
}

TEST_CASE(
    "a byte-level BPE that was made gives any bytes back, and is its folder's only vocabulary") {
  const TempFolder folder;
  save_word_piece(k_words, {}, folder.path());
  folder.write("tokenizer.json", "old");
  ByteBpeTrainer trainer(byte_bpe_special_names(false));
  std::string bytes; // In an order that puts quotes, backslashes and continuations beside another.
  for (int i = 0; i < 4096; ++i) {
    bytes += static_cast<char>(i * i / 7 + i);
  }
  bytes += bytes;
  trainer.read(bytes);
  trainer.read("\"\\\"\\ é中 é中  é中\t\t'll 1234 1234\n");
  const ByteBpeVocabulary made = trainer.train({.size = 600});
  CHECK(made.merges.size() > 200);
  save_byte_bpe(made.tokens, made.merges, folder.path());
  CHECK_FALSE(std::filesystem::exists(folder / "vocab.txt"));
  CHECK_FALSE(std::filesystem::exists(folder / "tokenizer.json"));
  CHECK(read_file(folder / "vocab.json").starts_with(R"({"<|endoftext|>":0,"!":1,"\"":2,"#":3)"));
  CHECK(read_file(folder / "merges.txt").starts_with("#version: 0.2\n"));
  CHECK(contains(read_file(folder / "tokenizer_config.json"), "GPT2Tokenizer"));
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokenizer->vocabulary().tokens() == made.tokens);
  CHECK_FALSE(tokenizer->special().has_mask());
  std::vector<TokenId> ids;
  tokenizer->encode(bytes, ids);
  CHECK(ids.size() < bytes.size());
  CHECK(tokenizer->decode(ids) == bytes);
}

TEST_CASE("bytes that are not UTF-8 are found wherever they stand") {
  CHECK(unicode::invalid_utf8("plain ASCII, long enough for words") == std::string_view::npos);
  CHECK(unicode::invalid_utf8("12345678\xc3\xa9 \xe4\xb8\xad") == std::string_view::npos);
  CHECK(unicode::invalid_utf8("1234567890\xff after") == 10);
  CHECK(unicode::invalid_utf8("ab\xc3") == 2);
}

TEST_CASE("a vocabulary is made of the most frequent pairs") {
  WordPieceTrainer trainer{TokenizerOptions()};
  trainer.read("Low low lower\nlowest  new newer wider");
  trainer.read("low");
  const std::vector<std::string> tokens = trainer.train({.size = 100});
  const Words expected = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "d",   "e",
                          "i",     "l",     "n",     "o",     "r",      "s",   "t",
                          "w",     "##d",   "##e",   "##i",   "##o",    "##r", "##s",
                          "##t",   "##w",   "lo",    "low",   "##er",   "ne",  "new"};
  CHECK(tokens == expected);
  CHECK(trainer.train({.size = 24}).size() == 24);
  CHECK(trainer.train({.size = 100, .least = 5}).back() == "low");
}
