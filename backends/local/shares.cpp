#include "backends/local/shares.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

namespace dtrain {

namespace {

/// Decodes the octal escapes that the kernel writes for blanks: "\040".
std::string unescaped(std::string_view text) {
  constexpr std::size_t k_digits = 3;
  constexpr int k_base = 8;
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string digits(text.substr(i + 1, k_digits));
    const bool is_escape =
        text[i] == '\\' && digits.size() == k_digits &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '7'; });
    if (is_escape) {
      plain += static_cast<char>(std::stoi(digits, nullptr, k_base));
      i += k_digits;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string_view without_slash(std::string_view path) {
  while (path.ends_with('/')) {
    path.remove_suffix(1);
  }
  return path;
}

} // namespace

std::string find_share(std::string_view share, std::string_view mounts) {
  const std::string_view wanted = without_slash(share);
  std::string best;
  std::size_t best_length = 0;
  for (std::size_t begin = 0; begin < mounts.size();) {
    const std::size_t end = std::min(mounts.find('\n', begin), mounts.size());
    const std::string_view line = mounts.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', std::min(first, line.size() - 1) + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      continue;
    }
    const std::string device = unescaped(line.substr(0, first));
    const std::string_view has = without_slash(device);
    const bool shows = device.find(":/") != std::string::npos && wanted.starts_with(has) &&
                       (wanted.size() == has.size() || wanted[has.size()] == '/');
    // Of two mounts on one folder, the later one is visible.
    if (shows && has.size() >= best_length) {
      best = unescaped(line.substr(first + 1, second - first - 1));
      best += wanted.substr(has.size());
      best_length = has.size();
    }
  }
  return best;
}

std::string find_share(std::string_view share) {
  std::ifstream file("/proc/self/mounts");
  return find_share(share, std::string(std::istreambuf_iterator<char>(file), {}));
}

} // namespace dtrain
