#include "backends/kubernetes/volumes.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::string_view k_share = "nfs://";
constexpr std::string_view k_csi = "csi://";

/// SERVER and PATH of "nfs://SERVER/PATH".
json share_of(const std::string& source, const std::string& text) {
  const std::string rest = source.substr(k_share.size());
  const std::size_t slash = rest.find('/');
  if (slash == 0 || slash == std::string::npos) {
    throw UsageError(
        fmt::format("--data={}: nfs://SERVER/PATH:/PATH is expected", printable(text)));
  }
  return {{"server", rest.substr(0, slash)}, {"share", rest.substr(slash)}};
}

/// "%26" is "&". Throws UsageError where two digits do not follow.
std::string percent_decoded(const std::string& text, const std::string& whole) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    constexpr int k_hexadecimal = 16;
    int byte = 0;
    const char* digits = text.data() + i + 1;
    const char* last = text.data() + std::min(i + 3, text.size());
    const auto [end, error] = std::from_chars(digits, last, byte, k_hexadecimal);
    if (error != std::errc() || end != digits + 2 || digits[0] == '-') {
      throw UsageError(
          fmt::format("--data={}: two hexadecimal digits are expected after %", printable(whole)));
    }
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

/// Of "csi://DRIVER?KEY=VALUE&…": the volume that the driver makes for each Pod.
json csi_volume_of(const std::string& source, const std::string& text) {
  const std::string rest = source.substr(k_csi.size());
  const std::size_t question = std::min(rest.find('?'), rest.size());
  json volume = {{"driver", rest.substr(0, question)},
                 {"fs_type", json::array()},
                 {"secret", json::array()},
                 {"attributes", json::array()}};
  std::string_view left = std::string_view(rest).substr(std::min(question + 1, rest.size()));
  bool is_readable = question != 0;
  while (!left.empty() && is_readable) {
    const std::string_view pair = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(pair.size() + 1, left.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string key = percent_decoded(std::string(pair.substr(0, equals)), text);
    const std::string value =
        percent_decoded(std::string(pair.substr(std::min(equals + 1, pair.size()))), text);
    is_readable = !key.empty() && equals < pair.size();
    if (key == "fsType") {
      volume["fs_type"] = {{{"name", value}}};
    } else if (key == "nodePublishSecretRef") {
      volume["secret"] = {{{"name", value}}};
    } else {
      volume["attributes"].push_back({{"key", key}, {"value", value}});
    }
  }
  if (!is_readable) {
    throw UsageError(
        fmt::format("--data={}: csi://DRIVER[?KEY=VALUE&…]:/PATH is expected", printable(text)));
  }
  volume["has_attributes"] = !volume["attributes"].empty();
  return volume;
}

} // namespace

std::string file_key(std::size_t index) { return fmt::format("file-{}", index); }

std::string code_folder(const JobSpec& job) {
  if (job.working_dir.starts_with('/')) {
    return job.working_dir;
  }
  return job.run_as_user == 0 ? "/root/code" : "/code";
}

std::string start_folder(const JobSpec& job) {
  if (job.sync_mode.empty() || job.working_dir.starts_with('/')) {
    return job.working_dir;
  }
  return job.working_dir.empty() ? code_folder(job) : code_folder(job) + "/" + job.working_dir;
}

std::vector<std::string> claims_of(const JobSpec& job) {
  std::vector<std::string> claims;
  for (const std::string& text : job.data) {
    const std::string source = parse_mount("--data", text).source;
    if (!source.starts_with(k_share) && !source.starts_with(k_csi)) {
      claims.push_back(source);
    }
  }
  return claims;
}

void add_volumes(const JobSpec& job, json& data) {
  for (const char* list : {"mounts", "claims", "host_paths", "shares", "csi", "files", "code"}) {
    data[list] = json::array();
  }
  const auto add = [&](const char* list, const MountText& mount, json volume) {
    const std::string name = fmt::format("data-{}", data["mounts"].size());
    data["mounts"].push_back(
        {{"volume", name}, {"path", mount.target}, {"read_only", mount.read_only}});
    volume["volume"] = name;
    volume["read_only"] = mount.read_only;
    data[list].push_back(std::move(volume));
  };
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    if (mount.source.starts_with(k_share)) {
      add("shares", mount, share_of(mount.source, text));
    } else if (mount.source.starts_with(k_csi)) {
      add("csi", mount, csi_volume_of(mount.source, text));
    } else {
      add("claims", mount, {{"claim", mount.source}});
    }
  }
  for (const std::string& text : job.data_dirs) {
    const MountText mount = parse_mount("--data-dir", text);
    add("host_paths", mount, {{"host_path", mount.source}});
  }
  for (std::size_t i = 0; i < job.config_files.size(); ++i) {
    data["files"].push_back(
        {{"key", file_key(i)}, {"path", parse_mount("--config-file", job.config_files[i]).target}});
  }
  if (!job.sync_mode.empty()) {
    data["code"].push_back(
        {{"folder", code_folder(job)},
         {"code_image", job.sync_image.empty() ? data["image"].get<std::string>() : job.sync_image},
         {"from_git", job.sync_mode == "git"},
         {"from_parts", job.sync_mode == "local"},
         {"user", job.sync_user.empty() ? "git" : job.sync_user}});
  }
}

} // namespace dtrain::kubernetes
