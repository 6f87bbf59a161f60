#include "submit/template/quote.h"

#include "submit/errors.h"
#include "submit/options/utf8.h"
#include "submit/text/base64.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace dtrain {
namespace {

constexpr std::string_view k_sh_plain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:,+@%=";

/// True where sh takes `text` for one word wherever it stands: no reserved word (all letters),
/// no assignment (a name and '='), no file descriptor (all digits), nothing to expand.
bool is_plain_sh(std::string_view text) {
  if (text.find_first_not_of(k_sh_plain) != std::string_view::npos) {
    return false;
  }
  const std::size_t mark = text.find_first_of("-./:,+@%");
  return mark != std::string_view::npos && mark < text.find('=');
}

/// Characters that some YAML emitter does not print raw, or some parser does not keep: controls,
/// DEL and C1, the line separators that YAML 1.1 folds, byte order marks and non-characters.
bool needs_yaml_escape(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
         code == 0xFEFF || (code & 0xFFFEU) == 0xFFFE;
}

std::string yaml_escape(char32_t code) {
  const auto value = static_cast<std::uint32_t>(code);
  return value <= 0xFF     ? fmt::format("\\x{:02X}", value)
         : value <= 0xFFFF ? fmt::format("\\u{:04X}", value)
                           : fmt::format("\\U{:08X}", value);
}

} // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const bool is_ascii = static_cast<unsigned char>(text.front()) < 0x80;
    const std::size_t length = is_ascii ? 1 : decode_utf8(text).length;
    if (length == 0) {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

std::string quote_sh(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    throw UsageError(
        fmt::format("'{}' has a NUL byte, which an argument cannot hold", printable(text)));
  }
  if (is_plain_sh(text)) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string quote_yaml(std::string_view text) {
  if (!is_utf8(text)) {
    return fmt::format("!!binary \"{}\"", base64_encode(text));
  }
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    if (next.code == '"' || next.code == '\\') {
      out += '\\';
      out += static_cast<char>(next.code);
    } else if (next.code == '\n') {
      out += "\\n";
    } else if (next.code == '\t') {
      out += "\\t";
    } else if (needs_yaml_escape(next.code)) {
      out += yaml_escape(next.code);
    } else {
      out += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return out + "\"";
}

std::optional<std::string> literal_yaml(std::string_view text, std::size_t indent) {
  const bool ended = text.ends_with('\n');
  const std::string_view lines = text.substr(0, text.size() - (ended ? 1 : 0));
  if (lines.find('\n') == std::string_view::npos || !is_utf8(lines)) {
    return std::nullopt;
  }
  for (std::string_view rest = lines; !rest.empty();) {
    const Utf8Char next = decode_utf8(rest);
    if (next.code != '\n' && next.code != '\t' && needs_yaml_escape(next.code)) {
      return std::nullopt;
    }
    rest.remove_prefix(next.length);
  }
  std::string out = ended ? "|" : "|-";
  for (std::size_t begin = 0; begin <= lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    const bool at_end = begin == 0 || end == lines.size();
    if (line.empty() ? at_end
                     : line.find_first_not_of(" \t") == std::string_view::npos ||
                           (begin == 0 && (line[0] == ' ' || line[0] == '\t'))) {
      return std::nullopt;
    }
    out += '\n';
    if (!line.empty()) {
      out.append(indent, ' ').append(line);
    }
    begin = end + 1;
  }
  return out;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    if (next.length == 0) {
      throw UsageError(fmt::format("'{}' is not UTF-8, which JSON needs", printable(text)));
    }
    if (next.code == '"' || next.code == '\\') {
      out += '\\';
      out += static_cast<char>(next.code);
    } else if (next.code < 0x20 || next.code == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next.code));
    } else {
      out += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return out + "\"";
}

} // namespace dtrain
