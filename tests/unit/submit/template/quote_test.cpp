#include "submit/template/quote.h"

#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <tuple>

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
      "~/x",
      "~root",
      "a=~/b",
      "PATH=~/b:~root/c",
      "+x",
      "%1",
      "^",
      "!!",
      "a~",
      "[a-z]*",
      "{a,b}",
      "a>b",
      "<<EOF",
      "1>&2",
      "if",
      "123",
      "\xc2\x80\xe2\x80\xa9\xef\xbf\xbe",
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

TEST_CASE("sh is given bare only the characters that mean nothing to it, anywhere in a word") {
  const std::string bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                           "_-./:,+@%=";
  for (int byte = 1; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_bare = bare.find(c) != std::string::npos;
    const std::string quoted = c == '\'' ? "'\\''" : std::string(1, c);
    for (const std::string before : {"", "x", "--x="}) {
      const std::string word = before + c + "/x";
      CAPTURE(word);
      const bool assigns = c == '=' && before != "--x=";
      CHECK(quote_sh(word) == (is_bare && !assigns ? word : "'" + before + quoted + "/x'"));
    }
  }
}

TEST_CASE("sh is given no word bare that is a keyword, an assignment or a number to it") {
  for (const std::string word : {"--lr=1e-3", "a-b", "a.b", "a/b", "a:b", "a,b", "a+b", "a@b",
                                 "50%", "-", "%=", "1.5", "a-b=c=d"}) {
    CHECK(quote_sh(word) == word);
  }
  for (const std::string word :
       {"", "if", "done", "x", "2", "a_b", "A=b", "a=b-c", "=", "=-", "_=x/y"}) {
    CHECK(quote_sh(word) == "'" + word + "'");
  }
}

TEST_CASE("YAML and JSON escape what is seen by no one or changed on the way, and nothing else") {
  // At each edge of what is escaped, one on each side.
  const std::vector<std::tuple<std::string, std::string, std::string>> edges = {
      {"\x01", R"("\x01")", R"("\u0001")"},
      {"\t", R"("\t")", R"("\u0009")"},
      {"\n", R"("\n")", R"("\u000a")"},
      {"\x1f", R"("\x1F")", R"("\u001f")"},
      {" ", R"(" ")", R"(" ")"},
      {"\"", R"("\"")", R"("\"")"},
      {"\\", R"("\\")", R"("\\")"},
      {"~", R"("~")", R"("~")"},
      {"\x7f", R"("\x7F")", R"("\u007f")"},
      {"\xc2\x80", R"("\x80")", "\"\xc2\x80\""},
      {"\xc2\x85", R"("\x85")", "\"\xc2\x85\""},
      {"\xc2\x9f", R"("\x9F")", "\"\xc2\x9f\""},
      {"\xc2\xa0", "\"\xc2\xa0\"", "\"\xc2\xa0\""},
      {"\xe2\x80\xa7", "\"\xe2\x80\xa7\"", "\"\xe2\x80\xa7\""}, // U+2027
      {"\xe2\x80\xa8", R"("\u2028")", "\"\xe2\x80\xa8\""},
      {"\xe2\x80\xa9", R"("\u2029")", "\"\xe2\x80\xa9\""},
      {"\xe2\x80\xaa", "\"\xe2\x80\xaa\"", "\"\xe2\x80\xaa\""},
      {"\xef\xbb\xbe", "\"\xef\xbb\xbe\"", "\"\xef\xbb\xbe\""}, // U+FEFE
      {"\xef\xbb\xbf", R"("\uFEFF")", "\"\xef\xbb\xbf\""},
      {"\xef\xbf\xbd", "\"\xef\xbf\xbd\"", "\"\xef\xbf\xbd\""}, // U+FFFD
      {"\xef\xbf\xbe", R"("\uFFFE")", "\"\xef\xbf\xbe\""},
      {"\xef\xbf\xbf", R"("\uFFFF")", "\"\xef\xbf\xbf\""},
      {"\xf0\x90\x80\x80", "\"\xf0\x90\x80\x80\"", "\"\xf0\x90\x80\x80\""},
      {"\xf0\x9f\xbf\xbe", R"("\U0001FFFE")", "\"\xf0\x9f\xbf\xbe\""},
      {"\xf4\x8f\xbf\xbf", R"("\U0010FFFF")", "\"\xf4\x8f\xbf\xbf\""},
  };
  for (const auto& [text, yaml, json] : edges) {
    CHECK(quote_yaml(text) == yaml);
    CHECK(quote_json(text) == json);
    CHECK(YAML::Load(quote_yaml(text)).Scalar() == text);
    CHECK(nlohmann::json::parse(quote_json(text)).get<std::string>() == text);
  }
}

TEST_CASE("a message shows what cannot be printed as an escape, and the rest as it is") {
  CHECK(printable("\n\t\r") == "\\n\\t\\x0d");
  CHECK(printable("\x1f \x7e\x7f") == "\\x1f ~\\x7f");
  CHECK(printable("\xc2\x80\xc2\x9f\xc2\xa0") == "\\xc2\\x80\\xc2\\x9f\xc2\xa0");
  CHECK(printable("a\xff\xc3\xa9\xc3") == "a\\xff\xc3\xa9\\xc3");
  CHECK(printable("") == "");
}

TEST_CASE("a scalar quoted for YAML is read back as the same string") {
  for (const std::string& text : hostile()) {
    const YAML::Node tree = YAML::Load(fmt::format("key: [{0}, {0}]\n", quote_yaml(text)));
    REQUIRE(tree["key"].size() == 2);
    CHECK(tree["key"][0].Tag() == "!");
    CHECK(tree["key"][1].Scalar() == text);
  }
}

TEST_CASE("text of several lines is a block literal that reads back, or none") {
  const std::string odd[] = {"a\n  b\n\n\tc\nd", "#!/bin/sh\n# no\n- x: {{y}}\n...\n---\n",
                             "a\n\nb\n"};
  for (const std::string& text : odd) {
    CAPTURE(text);
    for (const std::size_t indent : {2U, 7U}) {
      const auto literal = literal_yaml(text, indent);
      REQUIRE(literal);
      for (const char* after : {"b: c\n", "", "# a comment\n"}) {
        const YAML::Node tree = YAML::Load(fmt::format("a: {}\n{}", *literal, after));
        CHECK(tree["a"].Scalar() == text);
        CHECK(tree["a"].Tag() == "!");
      }
    }
  }
  for (const std::string& text : hostile()) {
    const auto literal = literal_yaml(text, 4);
    CHECK((!literal || YAML::Load(fmt::format("- a: {}\n", *literal))[0]["a"].Scalar() == text));
  }
  for (const char* text :
       {"", "one line", "one line\n", " a\nb", "\ta\nb", "\na\nb", "a\n\n", "a\n \nb", "a\nb\n ",
        "a\r\nb", "a\n\x1b", "a\n\xff", "a\n\xe2\x80\xa8"}) {
    CAPTURE(text);
    CHECK_FALSE(literal_yaml(text, 2));
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
  for (const char* good :
       {"", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(is_utf8(good));
  }
  for (const char* bad : {"\xf4\x90\x80\x80",
                          "\xf8\x88\x80\x80\x80", // past U+10FFFF
                          "\xed\xa0\x80",
                          "\xed\xbf\xbf", // surrogates
                          "\xc0\xaf",
                          "\xc1\xbf",
                          "\xe0\x9f\xbf",
                          "\xf0\x8f\xbf\xbf", // overlong
                          "\xc3",
                          "\xe2\x80",
                          "\xf0\x9f\x98", // cut short
                          "\xc3\x28",
                          "\xc3\xc0",
                          "\xe2\x28\xa1",
                          "\xe2\x82\x28",
                          "\xf0\x9f\x98\x28",
                          "\x80",
                          "\xbf",
                          "a\xff",
                          "\xfe"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}
