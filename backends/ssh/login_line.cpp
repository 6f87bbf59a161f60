#include "backends/ssh/login_line.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <string_view>

namespace dtrain::ssh {

namespace {

/// $0 is \, which all shells produce from \\. In each word _ooo is a byte in octal; the x in front
/// ensures that no word is empty or begins with a character special to shells. A final full stop
/// preserves newlines at the end.
constexpr std::string_view k_decode =
    R"(n=$#; while [ $n -gt 0 ]; do v=$1; case $v in *_*) )"
    R"(v=$(printf %s "$v" | sed "s/_/$0$0""0/g"); v=$(printf %b. "$v"); v=${v%.};; esac; )"
    R"(shift; set -- "$@" "${v#x}"; n=$((n - 1)); done; s=$1; shift; eval "$s")";

/// Leaves characters that are literal in every shell.
std::string plain(std::string_view word) {
  constexpr std::string_view k_plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789./-";
  std::string text = "x";
  for (const char c : word) {
    if (c == '\0') {
      throw UsageError("a word with a NUL byte cannot be passed to a program");
    }
    if (k_plain.find(c) != std::string_view::npos) {
      text += c;
    } else {
      text += fmt::format("_{:03o}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

} // namespace

std::string login_line(const std::string& script, const std::vector<std::string>& words) {
  auto line = fmt::format(R"(exec sh -c '{}' \\ {})", k_decode, plain(script));
  for (const auto& word : words) {
    line += " " + plain(word);
  }
  return line;
}

} // namespace dtrain::ssh
