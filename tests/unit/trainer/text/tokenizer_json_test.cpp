#include "trainer/text/tokenizer_json.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/unicode.h"

using namespace trainer;
using Json = nlohmann::json;

namespace {

/// As `tokenizers` writes BERT's.
Json word_piece() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "e": 5,
                        "É": 6, "##b": 7, "é": 8}}})");
}

/// As it writes GPT-2's.
Json byte_bpe() {
  Json made = Json::parse(R"({"added_tokens": [{"id": 258, "content": "<|endoftext|>"}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "merges": [["a", "a"], "Ġ aa"]}})");
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    unicode::append_utf8(byte_letters()[byte], letter);
    made["model"]["vocab"][letter] = byte;
  }
  made["model"]["vocab"]["aa"] = 256;
  made["model"]["vocab"]["Ġaa"] = 257;
  return made;
}

std::vector<TokenId> ids_of(const Json& whole, std::string_view text) {
  const TempFolder folder;
  folder.write("tokenizer.json", whole.dump());
  std::vector<TokenId> ids;
  load_tokenizer(folder.path())->encode(text, ids);
  return ids;
}

std::string refused(const Json& whole, const std::string& path, const Json& value) {
  Json changed = whole;
  changed[Json::json_pointer(path)] = value;
  const TempFolder folder;
  folder.write("tokenizer.json", changed.dump());
  const std::string message = message_of<DataError>([&] { load_tokenizer(folder.path()); });
  CHECK(contains(message, folder / "tokenizer.json"));
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

using Ids = std::vector<TokenId>;

} // namespace

TEST_CASE("tokenizer.json of WordPiece is read with the options of its normalizer") {
  Json whole = word_piece();
  CHECK(ids_of(whole, "Éb [MASK]") == Ids{5, 7, 4});
  whole["model"].erase("type");
  CHECK(ids_of(whole, "Éb [MASK]") == Ids{5, 7, 4});
  whole["normalizer"]["lowercase"] = false;
  CHECK(ids_of(whole, "Éb é") == Ids{6, 7, 8});
  whole["normalizer"]["lowercase"] = true;
  whole["normalizer"]["strip_accents"] = false;
  CHECK(ids_of(whole, "É") == Ids{8});
  whole["normalizer"] = nullptr;
  CHECK(ids_of(whole, "É") == Ids{6});
  const TempFolder folder;
  folder.write("tokenizer.json", word_piece().dump());
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(load_tokenizer(folder.path())->vocabulary().size() == 9);
  std::vector<TokenId> ids;
  load_tokenizer(folder.path())->encode("É", ids);
  CHECK(ids == Ids{6});
}

TEST_CASE(
    "tokenizer.json of a byte-level BPE is read, merges in either form and added tokens too") {
  Json whole = byte_bpe();
  CHECK(ids_of(whole, "aaa aa<|endoftext|>") == Ids{256, 'a', 257, 258});
  whole["model"].erase("type");
  CHECK(ids_of(whole, "aa") == Ids{256});
}

TEST_CASE("older files come before tokenizer.json, and a file of any name may be one") {
  const TempFolder folder;
  folder.write("tokenizer.json", "{}");
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  CHECK(load_tokenizer(folder.path())->vocabulary().size() == 5);
  CHECK(load_tokenizer(folder.write("wiki.json", word_piece().dump()))->vocabulary().size() == 9);
  CHECK(contains(message_of<DataError>([&] { load_tokenizer(folder.write("x.json", "[]")); }),
                 "x.json: has no \"model\" of a tokenizer; give tokenizer.json, or vocab.json"));
}

TEST_CASE("a million nested lists where a number should be are refused in one line") {
  const std::string open(1'000'000, '[');
  const std::string nested = open + std::string(open.size(), ']');
  const TempFolder folder;
  const auto said = [&](const char* name, const std::string& content) {
    const std::string path = folder.write(name, content);
    const std::string message = message_of<DataError>([&] { load_tokenizer(path); });
    CHECK(message.starts_with(path));
    CHECK(message.size() < path.size() + 200);
    return message;
  };
  const std::string model = R"({"model": {"type": "WordPiece", "vocab": {"a": )";
  CHECK(contains(said("tokenizer.json", model + nested + "}}}"), "has no \"model\""));
  CHECK(contains(said("tokenizer.json", model + open), "has no \"model\""));
  CHECK(contains(said("tokenizer.json", R"({"model": )" + nested + "}"), "has no \"model\""));
  folder.write("merges.txt", "");
  CHECK(contains(said("vocab.json", R"({"a": )" + nested + "}"), "is not a vocabulary"));
  CHECK(contains(said("vocab.json", open), "is not a vocabulary"));
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  folder.write("tokenizer_config.json", R"({"do_lower_case": )" + nested + "}");
  CHECK(contains(message_of<DataError>([&] { load_tokenizer(folder / "vocab.txt"); }),
                 "tokenizer_config.json: is not a JSON object"));
}

TEST_CASE("brackets in the names of tokens are not nested lists") {
  Json whole = word_piece();
  const std::string name(1000, '[');
  whole["model"]["vocab"][name + "\"" + name] = 9;
  CHECK(ids_of(whole, "Éb") == Ids{5, 7});
}

TEST_CASE("two tokens never have one number, nor a token two") {
  const Json bert = word_piece();
  CHECK(contains(refused(bert, "/model/vocab/e", 8), "tokens e and é both have the number 8"));
  Json empty = bert; // Its name must not pass for a number that is free.
  empty["model"]["vocab"][""] = 9;
  CHECK(ids_of(empty, "Éb") == Ids{5, 7});
  CHECK(contains(refused(empty, "/model/vocab/e", 9), "tokens '' and e both have the number 9"));
  CHECK(contains(refused(bert, "/added_tokens/0/id", 3),
                 "the added token [PAD] has the number 3, and 0 in the vocabulary of its model"));
  CHECK(contains(refused(bert, "/added_tokens/1", {{"id", 10}, {"content", "new"}}),
                 "token new has the number 10; 10 tokens are numbered 0 to 9"));
  for (const Json& number : {Json(-1), Json(5.0), Json(1U << 31), Json(UINT64_MAX), Json(1e300)}) {
    CHECK(contains(refused(bert, "/model/vocab/e", number), "token e has the number "));
  }
}

TEST_CASE(
    "tokenizer.json of another kind, or damaged, is refused in a line that says what it has") {
  const Json bert = word_piece();
  const Json gpt = byte_bpe();
  CHECK(contains(refused(bert, "/model/type", "Unigram"), "has the model Unigram; WordPiece"));
  CHECK(contains(refused(bert, "/normalizer/type", "Sequence"), "has the normalizer Sequence;"));
  CHECK(contains(refused(bert, "/normalizer/lowercase", 1), "\"lowercase\" of its normalizer"));
  CHECK(contains(refused(bert, "/pre_tokenizer/type", "Whitespace"), "pre_tokenizer Whitespace"));
  CHECK(contains(refused(bert, "/model/continuing_subword_prefix", "@@"), "prefix @@"));
  CHECK(contains(refused(bert, "/model/vocab", "none"), "\"vocab\" of its model must be"));
  CHECK(contains(refused(bert, "/model/vocab/e", 99), "token e has the number 99"));
  CHECK(contains(refused(bert, "/model/vocab/e", "5"), "token e has the number"));
  CHECK(contains(refused(bert, "/added_tokens/0", 5), "an added token has no \"content\""));
  CHECK(contains(refused(bert, "/added_tokens/0/content", "new"), "both have the number 0"));
  CHECK(contains(refused(bert, "/model/vocab/a\nb", 9), "has an end of line"));
  CHECK(contains(refused(gpt, "/pre_tokenizer", nullptr), "has the pre_tokenizer null"));
  CHECK(contains(refused(gpt, "/pre_tokenizer/add_prefix_space", true), "add_prefix_space"));
  CHECK(contains(refused(gpt, "/normalizer", {{"type", "NFC"}}), "has the normalizer NFC"));
  CHECK(contains(refused(gpt, "/model/merges", 3), "\"merges\" of its model"));
  CHECK(contains(refused(gpt, "/model/merges/0", {"a", 1}), "is no pair of tokens"));
  CHECK(contains(refused(gpt, "/model/merges/0", "aa"), "is no pair of tokens"));
  CHECK(contains(refused(gpt, "/model/merges/0", "a zz"), "a zz is not a pair of tokens whose"));
}
