#include "backends/support/code/ignore.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;

namespace {

bool out(const std::string& text, const std::string& path, bool is_folder = false) {
  IgnoreRules rules;
  rules.add("", text);
  return rules.leaves_out(path, is_folder);
}

} // namespace

TEST_CASE("a name alone is left out in every folder, a path only where it stands") {
  CHECK(out("*.bin\n", "a.bin"));
  CHECK(out("*.bin\n", "deep/er/a.bin"));
  CHECK_FALSE(out("*.bin\n", "a.bin.txt"));
  CHECK(out("/only\n", "only"));
  CHECK_FALSE(out("/only\n", "sub/only"));
  CHECK(out("sub/cache\n", "sub/cache"));
  CHECK_FALSE(out("sub/cache\n", "x/sub/cache"));
  CHECK_FALSE(out("a*b\n", "a/b"));
  CHECK(out(".*\n", "sub/.git"));
  CHECK(out("*\n", ".hidden"));
}

TEST_CASE("a final slash means folders alone") {
  CHECK(out("build/\n", "build", true));
  CHECK(out("build/\n", "x/build", true));
  CHECK_FALSE(out("build/\n", "build"));
}

TEST_CASE("two stars stand for any folders") {
  CHECK(out("**/logs\n", "logs"));
  CHECK(out("**/logs\n", "a/b/logs"));
  CHECK(out("a/**/b\n", "a/b"));
  CHECK(out("a/**/b\n", "a/x/y/b"));
  CHECK_FALSE(out("a/**/b\n", "a/x/c"));
  CHECK(out("abc/**\n", "abc/x"));
  CHECK_FALSE(out("abc/**\n", "abc", true));
}

TEST_CASE("the last pattern that fits counts, and an exclamation mark takes back") {
  CHECK_FALSE(out("*.log\n!keep.log\n", "keep.log"));
  CHECK(out("!keep.log\n*.log\n", "keep.log"));
  CHECK(out("*.log\n!keep.log\n", "x/other.log"));
}

TEST_CASE("comments, blanks and backslashes") {
  CHECK_FALSE(out("# a\n\n   \n", "# a"));
  CHECK(out("\\#a\n", "#a"));
  CHECK(out("\\!a\n", "!a"));
  CHECK(out("a  \r\n", "a"));
  CHECK(out("a\\ \n", "a "));
  CHECK(out("[ab]?c\n", "xy/bxc"));
  CHECK_FALSE(out("/\n", "a", true));
}

TEST_CASE("a file in a subfolder speaks of what is below it, and comes before those above") {
  IgnoreRules rules;
  rules.add("", "*.bin\n/top\n");
  rules.add("sub", "!keep.bin\n/here\n");
  CHECK_FALSE(rules.leaves_out("sub/keep.bin", false));
  CHECK(rules.leaves_out("keep.bin", false));
  CHECK(rules.leaves_out("sub/here", false));
  CHECK_FALSE(rules.leaves_out("here", false));
  CHECK_FALSE(rules.leaves_out("subs/here", false));
  CHECK_FALSE(rules.leaves_out("sub", true));
}

TEST_CASE("a pattern made to take long does not") {
  std::string pattern;
  std::string path;
  for (int i = 0; i < 40; ++i) {
    pattern += "**/a/";
    path += "a/";
  }
  CHECK_FALSE(out(pattern + "b\n", path + "c"));
}
