#include "submit/errors.h"

#include "submit/options/utf8.h"

#include <fmt/format.h>

#include <iterator>

namespace dtrain {

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Char next = decode_utf8(text);
    const std::size_t length = next.length == 0 ? 1 : next.length;
    const bool control = next.code < 0x20 || (next.code >= 0x7F && next.code < 0xA0);
    if (text[0] == '\n') {
      out += "\\n";
    } else if (text[0] == '\t') {
      out += "\\t";
    } else if (next.length == 0 || control) {
      for (std::size_t i = 0; i < length; ++i) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[i]));
      }
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

} // namespace dtrain
