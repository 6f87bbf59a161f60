#include "backends/support/user/env_file.h"

#include "backends/support/user/config_folder.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace dtrain {

namespace {

constexpr mode_t k_others = 077;
constexpr std::size_t k_longest = 131'071; ///< Linux: MAX_ARG_STRLEN less the final NUL.

bool is_key(const std::string& key) {
  if (key.empty() || std::isdigit(static_cast<unsigned char>(key[0])) != 0) {
    return false;
  }
  for (const char c : key) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') {
      return false;
    }
  }
  return true;
}

} // namespace

std::vector<std::string> read_env_file(const std::string& flag, const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw UsageError(fmt::format("{}={}: cannot be read: {}", flag, printable(path),
                                 std::strerror(errno == 0 ? EISDIR : errno)));
  }
  std::vector<std::string> entries;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') {
      continue;
    }
    line.erase(0, first);
    if (line.starts_with("export ")) {
      line.erase(0, std::strlen("export "));
    }
    const auto equals = line.find('=');
    const auto key = line.substr(0, equals);
    // The value is nobody's to see, so the message does not show it.
    if (equals == std::string::npos || !is_key(key)) {
      throw UsageError(
          fmt::format("{}={}: line {} is not KEY=VALUE", flag, printable(path), number));
    }
    auto value = line.substr(equals + 1);
    const bool quoted =
        value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
    if (quoted) {
      value = value.substr(1, value.size() - 2);
    }
    if (value.size() + key.size() >= k_longest || value.find('\0') != std::string::npos) {
      throw UsageError(fmt::format("{}={}: the value in line {} is too long or not text", flag,
                                   printable(path), number));
    }
    entries.push_back(fmt::format("{}={}", key, value));
  }
  return entries;
}

bool has_secret(const std::string& name) {
  std::error_code error;
  const bool is_name = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
  return !is_name || std::filesystem::exists(config_folder() / "secrets" / name, error);
}

std::vector<std::string> read_secret(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos) {
    throw UsageError(fmt::format("--secret={}: not a valid name for a secret", printable(name)));
  }
  const auto path = (config_folder() / "secrets" / name).string();
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    throw NotFound(fmt::format("--secret={}: no such secret; write KEY=VALUE lines to {}",
                               printable(name), printable(path)));
  }
  if ((info.st_mode & k_others) != 0) {
    throw UsageError(fmt::format("--secret={0}: others can read {1}: run chmod 600 {1}",
                                 printable(name), printable(path)));
  }
  return read_env_file("--secret", path);
}

std::vector<std::string> read_secret_env(const JobSpec& job) {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const auto& file : job.env_files) {
    add(read_env_file("--env-file", file));
  }
  for (const auto& name : job.secrets) {
    add(read_secret(name));
  }
  return all;
}

} // namespace dtrain
