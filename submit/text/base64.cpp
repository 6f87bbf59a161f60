#include "submit/text/base64.h"

#include <cstdint>

namespace dtrain {
namespace {

constexpr std::string_view k_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

} // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      std::uint32_t byte = at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
      group = group << 8U | byte;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      bool is_padding = at + i > bytes.size();
      text += is_padding ? '=' : k_digits[group >> (18U - 6U * i) & 63U];
    }
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  std::string bytes;
  std::uint32_t group = 0;
  unsigned bits = 0;
  bool ended = false;
  for (char c : text) {
    if (c == '\n' || c == '\r' || c == ' ') {
      continue;
    }
    if (c == '=') {
      ended = true;
      continue;
    }
    std::size_t digit = k_digits.find(c);
    if (ended || digit == std::string_view::npos) {
      return std::nullopt;
    }
    group = group << 6U | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(group >> bits & 255U);
    }
  }
  return bits >= 6 ? std::nullopt : std::optional<std::string>(std::move(bytes));
}

} // namespace dtrain
