#include "cli/settings/settings.h"

#include "backends/engine.h"

#include "backends/support/user/config_folder.h"
#include "submit/errors.h"
#include "submit/options/nearest.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_current = "current-profile";
constexpr std::string_view k_profiles = "profiles";
constexpr std::string_view k_data = "data";
constexpr std::string_view k_code = "code";
constexpr std::string_view k_hosts = "hosts";

/// Reads the nodes of one file, to name file and line in every message.
class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(printable(file.string())) {}

  Settings read(const YAML::Node& root) const {
    Settings settings;
    if (root.IsNull()) {
      return settings;
    }
    want_map(root, "the file");
    for (const auto& entry : root) {
      const std::string key = text(entry.first, "a key");
      if (key == k_current) {
        settings.current_profile = text(entry.second, key);
      } else if (key == k_profiles) {
        for_each_map(entry.second, k_profiles, "profile",
                     [&](const std::string& name, const YAML::Node& node) {
                       read_profile(node, settings.profiles[name]);
                     });
      } else if (key == k_data) {
        read_locations(entry.second, k_data, data_keys(), settings.data);
      } else if (key == k_code) {
        read_locations(entry.second, k_code, code_keys(), settings.code);
      } else {
        unknown_key(entry.first, key,
                    {std::string(k_current), std::string(k_profiles), std::string(k_data),
                     std::string(k_code)});
      }
    }
    return settings;
  }

  [[noreturn]] void fail(const YAML::Mark& mark, std::string_view message) const {
    throw UsageError(fmt::format("{}:{}: {}", file_, mark.line + 1, message));
  }

 private:
  void for_each_map(
      const YAML::Node& node, std::string_view section, std::string_view one,
      const std::function<void(const std::string& name, const YAML::Node& map)>& visit) const {
    if (node.IsNull()) {
      return;
    }
    want_map(node, section);
    for (const auto& entry : node) {
      const std::string name = text(entry.first, fmt::format("a {}'s name", one));
      if (!entry.second.IsNull()) {
        want_map(entry.second, fmt::format("{} '{}'", one, printable(name)));
      }
      visit(name, entry.second);
    }
  }

  void read_locations(const YAML::Node& node, std::string_view section,
                      const std::vector<std::string>& known, Locations& locations) const {
    for_each_map(node, section, section, [&](const std::string& name, const YAML::Node& map) {
      Values& values = locations[name];
      for (const auto& setting : map) {
        const std::string key = text(setting.first, "a key");
        if (std::find(known.begin(), known.end(), key) == known.end()) {
          unknown_key(setting.first, key, known);
        }
        values[key] = text(setting.second, key);
      }
    });
  }

  void read_profile(const YAML::Node& node, Profile& profile) const {
    std::vector<std::string> known = profile_keys();
    known.emplace_back(k_data);
    for (const auto& setting : node) {
      const std::string key = text(setting.first, "a key");
      if (key == k_data) {
        read_locations(setting.second, k_data, data_keys(), profile.data);
      } else if (std::find(known.begin(), known.end(), key) == known.end()) {
        unknown_key(setting.first, key, known);
      } else if (key == k_hosts && setting.second.IsSequence()) {
        std::string& hosts = profile.values[key];
        for (const auto& host : setting.second) {
          hosts += (hosts.empty() ? "" : ",") + text(host, "a host");
        }
      } else {
        profile.values[key] = text(setting.second, key);
      }
    }
  }

  std::string text(const YAML::Node& node, std::string_view what) const {
    if (!node.IsScalar()) {
      fail(node.Mark(), fmt::format("{} must be text", printable(what)));
    }
    return node.Scalar();
  }

  void want_map(const YAML::Node& node, std::string_view what) const {
    if (!node.IsMap()) {
      fail(node.Mark(), fmt::format("{} must hold 'key: value' lines", what));
    }
  }

  [[noreturn]] void unknown_key(const YAML::Node& node, const std::string& key,
                                const std::vector<std::string>& known) const {
    const auto near = nearest(key, known);
    fail(node.Mark(),
         near ? fmt::format("unknown key '{}'; did you mean '{}'?", printable(key), *near)
              : fmt::format("unknown key '{}'; known: {}", printable(key), fmt::join(known, ", ")));
  }

  std::string file_;
};

std::string system_error(std::string_view doing, const fs::path& file) {
  return fmt::format("cannot {} {}: {}", doing, printable(file.string()), std::strerror(errno));
}

/// Writes `text` to a new file that survives a crash right after. Throws Error.
void write_whole(const fs::path& file, std::string_view text) {
  constexpr mode_t k_private = 0600;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, k_private);
  if (fd < 0) {
    throw Error(system_error("write", file));
  }
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    good = written >= 0;
    text.remove_prefix(good ? static_cast<std::size_t>(written) : 0);
  }
  good = good && fsync(fd) == 0;
  const std::string problem = good ? "" : system_error("write", file);
  close(fd);
  if (!good) {
    unlink(file.c_str());
    throw Error(problem);
  }
}

void write_values(std::string& text, int indent, const Values& values) {
  for (const auto& [key, value] : values) {
    text += fmt::format("{:{}}{}: {}\n", "", indent, key, quote_yaml(value));
  }
}

void write_locations(std::string& text, int indent, std::string_view section,
                     const Locations& locations) {
  if (locations.empty()) {
    return;
  }
  text += fmt::format("{:{}}{}:\n", "", indent, section);
  for (const auto& [name, values] : locations) {
    text += fmt::format("{:{}}{}:\n", "", indent + 2, quote_yaml(name));
    write_values(text, indent + 4, values);
  }
}

} // namespace

Locations Settings::data_of(std::string_view name) const {
  const std::string_view used = name.empty() ? current_profile : name;
  Locations all = used.empty() ? Locations() : profile(used).data;
  all.insert(data.begin(), data.end()); // Which replaces none.
  return all;
}

const Profile& Settings::profile(std::string_view name) const {
  const auto found = profiles.find(name);
  if (found != profiles.end()) {
    return found->second;
  }
  std::vector<std::string> known;
  for (const auto& entry : profiles) {
    known.push_back(printable(entry.first));
  }
  if (known.empty()) {
    throw NotFound(fmt::format("no profile '{}'; make it with 'dtrain config set --profile={} "
                               "backend {}'",
                               printable(name), printable(name), backend_names().front()));
  }
  throw NotFound(
      fmt::format("no profile '{}'; available: {}", printable(name), fmt::join(known, ", ")));
}

const std::vector<std::string>& profile_keys() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> keys = {"backend", "namespace"};
    for (const AccessFlag& flag : access_flags()) {
      if (flag.in_profile) {
        keys.emplace_back(flag.name);
      }
    }
    keys.insert(keys.end(), {"image", "hosts"});
    return keys;
  }();
  return all;
}

const std::vector<std::string>& data_keys() {
  static const std::vector<std::string> all = {
      "path", "claim",    "nfs", "bucket", "endpoint", "region", "credentials-file",
      "csi",  "read-only"};
  return all;
}

const std::vector<std::string>& code_keys() {
  static const std::vector<std::string> all = {"git", "path", "user", "token-file"};
  return all;
}

fs::path default_config_file() { return config_folder() / "config.yaml"; }

Settings read_settings(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return {};
    }
    throw Error(system_error("read", file));
  }
  std::stringstream text;
  text << stream.rdbuf();
  if (stream.bad() || (text.fail() && stream.peek() != std::ifstream::traits_type::eof())) {
    throw Error(system_error("read", file));
  }
  const Reader reader(file);
  try {
    return reader.read(YAML::Load(text.str()));
  } catch (const YAML::Exception& error) {
    reader.fail(error.mark, error.msg);
  }
}

void write_settings(const fs::path& file, const Settings& settings) {
  std::string text;
  if (!settings.current_profile.empty()) {
    text += fmt::format("{}: {}\n", k_current, quote_yaml(settings.current_profile));
  }
  text += fmt::format("{}:\n", k_profiles);
  for (const auto& [name, profile] : settings.profiles) {
    text += fmt::format("  {}:\n", quote_yaml(name));
    write_values(text, 4, profile.values);
    write_locations(text, 4, k_data, profile.data);
  }
  write_locations(text, 0, k_data, settings.data);
  write_locations(text, 0, k_code, settings.code);

  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) {
    throw Error(fmt::format("cannot make the folder {}: {}", printable(file.parent_path().string()),
                            error.message()));
  }
  fs::path whole = file;
  whole += fmt::format(".{}.tmp", getpid());
  write_whole(whole, text);
  if (rename(whole.c_str(), file.c_str()) != 0) {
    const std::string problem = system_error("write", file);
    unlink(whole.c_str());
    throw Error(problem);
  }
}

std::optional<std::string> profile_value(const Settings& settings, std::string_view profile,
                                         std::string_view key) {
  const std::string_view name = profile.empty() ? settings.current_profile : profile;
  if (name.empty()) {
    return std::nullopt;
  }
  const Values& values = settings.profile(name).values;
  const auto found = values.find(key);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

} // namespace dtrain
