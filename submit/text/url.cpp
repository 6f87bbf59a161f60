#include "submit/text/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace dtrain {
namespace {

std::optional<std::string> unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    constexpr int k_hexadecimal = 16;
    int byte = 0;
    const char* digits = text.data() + i + 1;
    const char* last = text.data() + std::min(i + 3, text.size());
    const auto [end, error] = std::from_chars(digits, last, byte, k_hexadecimal);
    if (error != std::errc() || end != digits + 2 || digits[0] == '-') {
      return std::nullopt;
    }
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

} // namespace

bool holds_password(std::string_view url) {
  const auto scheme = url.find("://");
  if (scheme == std::string_view::npos) {
    return false;
  }
  const auto host = url.substr(scheme + 3, url.find('/', scheme + 3) - scheme - 3);
  return host.find('@') != std::string_view::npos && host.find(':') < host.find('@');
}

std::string escape_url(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '.' || c == '_' || c == '~';
    escaped += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return std::nullopt;
    }
    const auto key = unescape(pair.substr(0, equals));
    const auto value = unescape(pair.substr(equals + 1));
    if (!key || !value) {
      return std::nullopt;
    }
    pairs.emplace_back(*key, *value);
  }
  return pairs;
}

} // namespace dtrain
