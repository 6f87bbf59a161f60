// Named profiles: what commands use where flags and environment say nothing; and named data and
// code. They live in $XDG_CONFIG_HOME/dtrain/config.yaml:
//
//   current-profile: cluster
//   profiles:
//     cluster:
//       backend: NAME
//       namespace: team-a
//       image: registry.example.org/train:1
//       hosts: [node-1, node-2]
//       data:                          # for this profile alone
//         training-data:
//           claim: training-pvc
//   data:
//     training-data:
//       path: /mnt/training
//   code:
//     bert:
//       git: https://example.org/bert.git@main
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Keys and their values.
using Values = std::map<std::string, std::string, std::less<>>;

/// Keyed by name.
using Locations = std::map<std::string, Values, std::less<>>;

struct Profile {
  Values values;  ///< Keyed as in profile_keys(); hosts are joined by commas.
  Locations data; ///< Found before what all profiles have.
  bool operator==(const Profile&) const = default;
};

struct Settings {
  std::string current_profile; ///< Empty: none.
  std::map<std::string, Profile, std::less<>> profiles;
  Locations data; ///< Named data, with data_keys() …
  Locations code; ///< … and code, with code_keys().

  /// The settings for --profile=NAME; empty: the current profile.
  Locations data_of(std::string_view profile) const;

  /// Throws UsageError that names the known profiles.
  const Profile& profile(std::string_view name) const;
};

/// The keys that a profile may have.
const std::vector<std::string>& profile_keys();

/// Locations of named data and code.
const std::vector<std::string>& data_keys();
const std::vector<std::string>& code_keys();

/// config.yaml of config_folder().
std::filesystem::path default_config_file();

/// Empty settings where there is no file. Throws UsageError with file and line for bad syntax and
/// unknown keys.
Settings read_settings(const std::filesystem::path& file);

/// Replaces the file at once, keeping nothing of it but what `settings` says. Throws Error.
void write_settings(const std::filesystem::path& file, const Settings& settings);

/// The value of `key` in the profile asked for, or in the current one where `profile` is empty.
std::optional<std::string> profile_value(const Settings& settings, std::string_view profile,
                                         std::string_view key);

} // namespace dtrain
