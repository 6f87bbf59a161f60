// What is expected here follows from how `tokenizers` finds added tokens: those that are not
// normalized first, in the text as it is; then the others in what the normalizer makes of the rest;
// from left to right, the longest at a place.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/unicode.h"

using namespace trainer;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

namespace {

constexpr TokenId k_unknown = 1;
constexpr TokenId k_mask = 4;
constexpr TokenId k_new = 5;
constexpr TokenId k_york = 6;
constexpr TokenId k_a = 7;
constexpr TokenId k_b = 8;
constexpr TokenId k_more_b = 9; ///< ##b
constexpr TokenId k_dash = 10;
constexpr TokenId k_added = 11; ///< The first number of an added token.

/// Its normalizer is BERT's: lower case, no accents.
Json word_piece(const Json& added) {
  Json made = Json::parse(R"({"normalizer": {"type": "BertNormalizer", "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "continuing_subword_prefix": "##",
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "new": 5,
                        "york": 6, "a": 7, "b": 8, "##b": 9, "-": 10}}})");
  made["added_tokens"] = added;
  return made;
}

/// Each byte is a token, nothing is merged, 256 is the end of a text, and what is added follows.
Json byte_bpe(const Json& added) {
  Json made = Json::parse(R"({"normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "merges": [], "vocab": {"<|endoftext|>": 256}}})");
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    unicode::append_utf8(byte_letters()[byte], letter);
    made["model"]["vocab"][letter] = byte;
  }
  made["added_tokens"] = added;
  return made;
}

std::unique_ptr<Tokenizer> loaded(const Json& whole) {
  const TempFolder folder;
  folder.write("tokenizer.json", whole.dump());
  return load_tokenizer(folder.path());
}

Ids ids_of(const Json& whole, std::string_view text) {
  Ids ids;
  loaded(whole)->encode(text, ids);
  return ids;
}

} // namespace

TEST_CASE("an added token is found whole, at the leftmost place the longest") {
  const Json whole = word_piece({{{"id", 11}, {"content", "<ab>"}, {"normalized", false}},
                                 {{"id", 12}, {"content", "<ab>b"}, {"normalized", false}},
                                 {{"id", 13}, {"content", "b<"}, {"special", true}},
                                 {{"id", 14}, {"content", ""}}});
  CHECK(ids_of(whole, "<ab>") == Ids{11});
  CHECK(ids_of(whole, "a<ab>b a") == Ids{k_a, 12, k_a});
  CHECK(ids_of(whole, "b<ab>") == Ids{13, k_a, k_more_b, k_unknown});
  CHECK(ids_of(whole, "<ab") == Ids{k_unknown, k_a, k_more_b});
  CHECK(ids_of(whole, "<ab><ab>[MASK]<ab>") == Ids{11, 11, k_mask, 11});
  CHECK(ids_of(whole, "").empty());
}

TEST_CASE("a token of a single word is not found beside letters, marks, digits and _") {
  const Json whole =
      word_piece({{{"id", 11}, {"content", "ny"}, {"single_word", true}, {"normalized", false}},
                  {{"id", 12}, {"content", "<x"}, {"normalized", false}},
                  {{"id", 13}, {"content", "<xy"}, {"single_word", true}, {"normalized", false}}});
  CHECK(ids_of(whole, "ny ab") == Ids{11, k_a, k_more_b});
  CHECK(ids_of(whole, "ny-ny") == Ids{11, k_dash, 11});
  for (const char* word : {"any", "nya", "ny2", "nyé", "ény", "ny\u0303"}) {
    CHECK(ids_of(whole, word) == Ids{k_unknown});
  }
  for (const char* words : {"ny_", "_ny", "ny中"}) { // Two words of the model, which has no ny.
    CHECK(ids_of(whole, words) == Ids{k_unknown, k_unknown});
  }
  // Where the longest may not stand, no shorter one does.
  CHECK(ids_of(whole, "<xa") == Ids{12, k_a});
  CHECK(ids_of(whole, "<xyb") == Ids{k_unknown, k_unknown});
}

TEST_CASE("white space beside an added token goes with it where it strips") {
  const Json whole = byte_bpe({{{"id", 257}, {"content", "<l>"}, {"lstrip", true}},
                               {{"id", 258}, {"content", "<r>"}, {"rstrip", true}},
                               {{"id", 259}, {"content", "<n>"}}});
  CHECK(ids_of(whole, "a <l> b") == Ids{'a', 257, ' ', 'b'});
  CHECK(ids_of(whole, "a <r> b") == Ids{'a', ' ', 258, 'b'});
  CHECK(ids_of(whole, "a <n> b") == Ids{'a', ' ', 259, ' ', 'b'});
  CHECK(ids_of(whole, "a\u3000\t\u2003\n<l>") == Ids{'a', 257});
  CHECK(ids_of(whole, "<r> \u0085\r\n") == Ids{258});
  CHECK(ids_of(whole, "<r>  <l><l> <r> <n> ") == Ids{258, 257, 257, ' ', 258, 259, ' '});
  CHECK(ids_of(whole, "  <l>") == Ids{257});
}

TEST_CASE("a normalized token is found in the normalized text, and the others in the text itself") {
  Json whole = word_piece(Json::array({{{"id", 11}, {"content", "New York"}}}));
  CHECK(ids_of(whole, "a NEW\tyork b") == Ids{k_a, 11, k_b});
  CHECK(ids_of(whole, "Néw York") == Ids{11});
  CHECK(ids_of(whole, "anew yorkb") == Ids{k_a, 11, k_b});
  CHECK(ids_of(whole, "new  york") == Ids{k_new, k_york});
  whole["added_tokens"][0]["normalized"] = false;
  CHECK(ids_of(whole, "new york") == Ids{k_new, k_york});
  CHECK(ids_of(whole, "aNew Yorka") == Ids{k_a, 11, k_a});
  whole["added_tokens"][0]["normalized"] = true;
  whole["added_tokens"].push_back({{"id", 12}, {"content", "YORK"}, {"normalized", false}});
  CHECK(ids_of(whole, "new york new YORK") == Ids{11, k_new, 12});
  // Of special ones the flags are the file's.
  whole["added_tokens"][1] = {
      {"id", k_mask}, {"content", "[MASK]"}, {"special", true}, {"normalized", true}};
  CHECK(ids_of(whole, "[mask] [MASK]") == Ids{k_mask, k_mask});
  Json end = byte_bpe(Json::array({{{"id", 256}, {"content", "<|endoftext|>"}}}));
  CHECK(ids_of(end, "a <|endoftext|>") == Ids{'a', ' ', 256});
  end["added_tokens"][0]["lstrip"] = true;
  CHECK(ids_of(end, "a <|endoftext|>") == Ids{'a', 256});
}

TEST_CASE("added tokens come back as text, and the special ones of them do not") {
  const Json added = {{{"id", k_added}, {"content", "New York"}},
                      {{"id", k_added + 1}, {"content", "<x>"}, {"special", true}}};
  CHECK(loaded(word_piece(added))->decode(Ids{k_a, k_added, k_added + 1, k_b}) == "a New York b");
  Json bytes = added;
  bytes[0]["id"] = 257;
  bytes[1]["id"] = 258;
  CHECK(loaded(byte_bpe(bytes))->decode(Ids{'a', ' ', 257, 258, 'b'}) == "a New Yorkb");
  bytes[0]["content"] = "Été"; // Each of its letters is one of a byte's, too.
  CHECK(loaded(byte_bpe(bytes))->decode(Ids{257, 0xC3, 0xA9}) == "Étéé");
}

TEST_CASE("a flag of an added token that is neither true nor false is refused") {
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    const Json whole = word_piece(Json::array({{{"id", 11}, {"content", "x"}, {flag, 1}}}));
    CHECK(contains(message_of<DataError>([&] { loaded(whole); }),
                   std::string("\"") + flag + "\" of the added token x must be true or false"));
  }
}

TEST_CASE("a vocabulary taken with other options keeps its added tokens") {
  const TempFolder folder;
  folder.write("tokenizer.json",
               word_piece(Json::array({{{"id", 11}, {"content", "New York"}}})).dump());
  const TempFolder copy;
  copy_tokenizer(folder.path(), copy.path(), TokenizerOptions{.lowercase = false});
  Ids ids;
  load_tokenizer(copy.path())->encode("New York new york NEW york", ids);
  CHECK(ids == Ids{11, k_new, k_york, k_unknown, k_york});
  const Json made = Json::parse(read_file(copy / "tokenizer.json"));
  CHECK(made["normalizer"]["lowercase"] == false);
  CHECK(made["added_tokens"][0]["content"] == "New York");
}
