#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/data/token_shards.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

constexpr SpecialTokens k_special = {.pad = 0, .unknown = 1, .first = 2, .last = 3, .mask = 4};

/// Row i: [CLS] 10+i [SEP], of `length`.
void write(const std::string& folder, std::size_t rows, std::size_t vocabulary = 1000,
           double held_out = 0, std::size_t shard_bytes = 1 << 20) {
  TokenSetWriter writer(folder, {.length = 8,
                                 .vocabulary = vocabulary,
                                 .special = k_special,
                                 .held_out = held_out,
                                 .shard_bytes = shard_bytes});
  for (std::size_t i = 0; i < rows; ++i) {
    const std::vector<TokenId> row = {2, static_cast<TokenId>(10 + i), 3};
    writer.add(row);
  }
  writer.finish();
}

std::string opened(const std::string& folder) {
  return message_of<DataError>([&] { open_token_set(folder).train.verify(); });
}

void change(const std::string& path, std::size_t at, char to) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(to);
}

} // namespace

TEST_CASE("a token set gives its rows back, over several shards, in both widths") {
  for (const std::size_t vocabulary : {1000, 100'000}) {
    const TempFolder folder;
    write(folder.path(), 50, vocabulary, 0.1, 130);
    CHECK(is_token_set(folder.path()));
    const TokenSet set = open_token_set(folder.path());
    CHECK(set.train.count() == 45);
    CHECK(set.held_out.count() == 5);
    CHECK(set.special == k_special);
    CHECK(set.vocabulary == vocabulary);
    std::vector<TokenId> row(8);
    std::vector<TokenId> seen;
    for (const TokenRows* rows : {&set.train, &set.held_out}) {
      for (std::size_t i = 0; i < rows->count(); ++i) {
        REQUIRE(rows->read(i, row) == 3);
        CHECK(row[0] == 2);
        CHECK(row[2] == 3);
        CHECK(row[3] == 0);
        seen.push_back(row[1]);
      }
    }
    std::sort(seen.begin(), seen.end());
    CHECK(seen.front() == 10);
    CHECK(seen.back() == 59);
    CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
    set.train.verify();
  }
}

TEST_CASE("token sets of other tokens have other digests") {
  const TempFolder one;
  const TempFolder same;
  const TempFolder other;
  write(one.path(), 20);
  write(same.path(), 20);
  write(other.path(), 21);
  CHECK(open_token_set(one.path()).digest == open_token_set(same.path()).digest);
  CHECK(open_token_set(one.path()).digest != open_token_set(other.path()).digest);
}

TEST_CASE("a new token set takes the place of the one that was there") {
  const TempFolder folder;
  write(folder.path(), 50, 1000, 0, 130);
  write(folder.path(), 2);
  CHECK(open_token_set(folder.path()).train.count() == 2);
  CHECK_FALSE(std::filesystem::exists(folder / "train-00001.tokens"));
}

TEST_CASE("a shard that is cut off, changed, of another set or missing is named") {
  const TempFolder folder;
  write(folder.path(), 20);
  const std::string shard = folder / "train-00000.tokens";
  const std::string whole = read_file(shard);
  const auto said = [&](const std::string& content) {
    folder.write("train-00000.tokens", content);
    return opened(folder.path());
  };
  CHECK(opened(folder.path()).empty());
  CHECK(contains(said(whole.substr(0, whole.size() - 1)), "damaged or cut off"));
  CHECK(contains(said(whole.substr(0, 63)), "63 bytes are no token shard"));
  CHECK(contains(said(whole + "x"), "damaged or cut off"));
  CHECK(contains(said("x" + whole.substr(1)), "does not begin as a token shard does"));
  folder.write("train-00000.tokens", whole);
  change(shard, 64 + 3, 1);
  CHECK(contains(opened(folder.path()), "the digest differs"));
  change(shard, 64 + 3, 127); // Token 10 + 256 × 127.
  std::vector<TokenId> row(8);
  CHECK(contains(message_of<DataError>([&] { open_token_set(folder.path()).train.read(0, row); }),
                 "row 0 has token 32"));
  change(shard, 8, 9);
  CHECK(contains(opened(folder.path()), "version 9"));
  const TempFolder other;
  write(other.path(), 20, 2000);
  CHECK(contains(said(read_file(other / "train-00000.tokens")), "of another token set"));
  std::filesystem::remove(shard);
  CHECK(contains(opened(folder.path()), "train-00000.tokens: cannot read"));
}

TEST_CASE("a manifest that is none, or names files elsewhere, is refused") {
  const TempFolder folder;
  CHECK(contains(opened(folder.path()), "manifest.json: cannot read"));
  folder.write("manifest.json", "{}");
  CHECK(contains(opened(folder.path()), "has no \"format\""));
  write(folder.path(), 5);
  const std::string text = read_file(folder / "manifest.json");
  const std::string name = "train-00000.tokens";
  const std::size_t at = text.find(name);
  for (const std::string outside : {"../train-00000.tokens", "..", ".", "a/"}) {
    folder.write("manifest.json", std::string(text).replace(at, name.size(), outside));
    CHECK(contains(opened(folder.path()), "names a shard " + outside + ", which is no file"));
  }
}
