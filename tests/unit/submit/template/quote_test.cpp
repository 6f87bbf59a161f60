#include "submit/template/quote.h"

#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <cstdio>

using namespace dtrain;

namespace {

const std::vector<std::string>& hostile() {
  static const std::vector<std::string> all = {
      "",
      "plain",
      "a'; echo foo",
      "a\"=0\"",
      "two\nlines\n",
      "\n",
      "tab\tcr\r",
      "$HOME `id` $(id) ${x} \\ \\\\ !",
      "# no comment",
      "key: value",
      "{{x}} {{{y}}} {{#z}}",
      "- item",
      "true",
      "null",
      "~",
      "1e3",
      "0x10",
      "=x",
      "-n",
      "&a *a !!str",
      "\xc3\xa9\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x98\x80",
      "\x1b[31m\x7f\xc2\x85",
      "   leading and trailing   ",
      "'''''",
      "%YAML 1.2\n---\n...",
  };
  return all;
}

std::string by_sh(const std::string& word) {
  FILE* pipe = popen(fmt::format("printf %s {}", word).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) {
    out += static_cast<char>(c);
  }
  CHECK(pclose(pipe) == 0);
  return out;
}

} // namespace

TEST_CASE("a word quoted for sh reaches a program byte for byte") {
  for (const std::string& text : hostile()) {
    CHECK(by_sh(quote_sh(text)) == text);
  }
  CHECK(by_sh(quote_sh("\xff\x80'\xfe")) == "\xff\x80'\xfe");
  CHECK(quote_sh("--lr=1e-3") == "--lr=1e-3");
  CHECK_THROWS_AS(quote_sh(std::string("a\0b", 3)), UsageError);
}

TEST_CASE("a scalar quoted for YAML is read back as the same string") {
  for (const std::string& text : hostile()) {
    const YAML::Node tree = YAML::Load(fmt::format("key: [{0}, {0}]\n", quote_yaml(text)));
    REQUIRE(tree["key"].size() == 2);
    CHECK(tree["key"][0].Tag() == "!");
    CHECK(tree["key"][1].Scalar() == text);
  }
}

TEST_CASE("bytes that are not UTF-8 go through YAML as !!binary") {
  for (const std::string text : {"\xff", "a\xfe", "ab\xfd", "abc\x80z"}) {
    const YAML::Node node = YAML::Load(quote_yaml(text));
    CHECK(node.Tag() == "tag:yaml.org,2002:binary");
    const auto bytes = node.as<YAML::Binary>();
    CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == text);
  }
}

TEST_CASE("a string quoted for JSON is read back, and one that JSON cannot hold is refused") {
  for (const std::string& text : hostile()) {
    CHECK(nlohmann::json::parse(quote_json(text)).get<std::string>() == text);
  }
  CHECK_THROWS_WITH_AS(quote_json("a\xff"), "'\\xff' is not UTF-8, which JSON needs", UsageError);
}

TEST_CASE("UTF-8 is judged strictly") {
  CHECK(is_utf8("\xf4\x8f\xbf\xbf"));
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80")); // past U+10FFFF
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));     // surrogate
  CHECK_FALSE(is_utf8("\xc0\xaf"));         // overlong
  CHECK_FALSE(is_utf8("\xe2\x80"));         // cut short
  CHECK_FALSE(is_utf8("\x80"));
}
