#include "backends/kubernetes/render/volumes.h"

#include "backends/kubernetes/own_fields.h"
#include "backends/support/bucket/bucket_keys.h"
#include "submit/bucket.h"
#include "submit/errors.h"
#include "submit/text/url.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

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
    throw UsageError(fmt::format("--data={}: must be nfs://SERVER/PATH:/PATH", printable(text)));
  }
  return {{"server", rest.substr(0, slash)}, {"share", rest.substr(slash)}};
}

/// "csi://DRIVER?KEY=VALUE&…": the volume that the driver creates for each Pod.
json csi_volume_of(const std::string& source, const std::string& text) {
  const std::string rest = source.substr(k_csi.size());
  const std::size_t question = std::min(rest.find('?'), rest.size());
  json volume = {{"driver", rest.substr(0, question)},
                 {"fs_type", json::array()},
                 {"secret", json::array()},
                 {"attributes", json::array()}};
  const auto query =
      parse_query(std::string_view(rest).substr(std::min(question + 1, rest.size())));
  if (question == 0 || !query) {
    throw UsageError(
        fmt::format("--data={}: must be csi://DRIVER[?KEY=VALUE&…]:/PATH", printable(text)));
  }
  for (const auto& [key, value] : *query) {
    if (key == "fsType") {
      volume["fs_type"] = {{{"name", value}}};
    } else if (key == "nodePublishSecretRef") {
      volume["secret"] = {{{"name", value}}};
    } else {
      volume["attributes"].push_back({{"key", key}, {"value", value}});
    }
  }
  volume["has_attributes"] = !volume["attributes"].empty();
  return volume;
}

} // namespace

std::string file_key(std::size_t index) { return fmt::format("file-{}", index); }

std::string bucket_key(std::size_t index, const char* what) {
  return fmt::format("bucket-{}-{}", index, what);
}

std::string code_folder(const JobSpec& job) {
  if (job.working_dir.starts_with('/')) {
    return job.working_dir;
  }
  return own::run_as_user(job) == 0 ? "/root/code" : "/code";
}

std::string start_folder(const JobSpec& job) {
  if (job.working_dir.starts_with('/')) {
    return job.working_dir;
  }
  if (job.sync_mode.empty()) {
    if (!job.working_dir.empty()) {
      throw UsageError(fmt::format("--working-dir={}: must be an absolute path in a container, or "
                                   "a folder of the code with --sync-mode or --code",
                                   printable(job.working_dir)));
    }
    return "";
  }
  return job.working_dir.empty() ? code_folder(job) : code_folder(job) + "/" + job.working_dir;
}

std::vector<std::string> claims_of(const JobSpec& job) {
  std::vector<std::string> claims;
  for (const std::string& text : job.data) {
    const std::string source = parse_mount("--data", text).source;
    if (!source.starts_with(k_share) && !source.starts_with(k_csi) && !is_bucket(source)) {
      claims.push_back(source);
    }
  }
  return claims;
}

void add_volumes(const JobSpec& job, json& data) {
  for (const char* list :
       {"mounts", "claims", "host_paths", "shares", "csi", "buckets", "files", "code"}) {
    data[list] = json::array();
  }
  const std::string brings =
      own::sync_image(job).empty() ? data["image"].get<std::string>() : own::sync_image(job);
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
    } else if (is_bucket(mount.source)) {
      Bucket bucket = parse_bucket("--data", mount.source);
      bucket.credentials_file.clear(); // A path on this machine: the Secret has its contents.
      const BucketVariables names = bucket_variables(bucket);
      const std::size_t number = data["buckets"].size();
      add("buckets", mount,
          {{"source", bucket.text()},
           {"path", mount.target},
           {"image", brings},
           {"id_name", names.id},
           {"secret_name", names.secret},
           {"token_name", names.session_token},
           {"id_key", bucket_key(number, "id")},
           {"secret_key", bucket_key(number, "secret")},
           {"token_key", bucket_key(number, "session-token")}});
    } else {
      add("claims", mount, {{"claim", mount.source}});
    }
  }
  for (const std::string& text : job.data_dirs) {
    const MountText mount = parse_mount("--data-dir", text);
    if (!mount.source.starts_with('/')) {
      throw UsageError(
          fmt::format("--data-dir={}: must be an absolute path of the node", printable(text)));
    }
    add("host_paths", mount, {{"host_path", mount.source}});
  }
  for (std::size_t i = 0; i < job.config_files.size(); ++i) {
    data["files"].push_back(
        {{"key", file_key(i)}, {"path", parse_mount("--config-file", job.config_files[i]).target}});
  }
  if (!job.sync_mode.empty()) {
    data["code"].push_back({{"folder", code_folder(job)},
                            {"code_image", brings},
                            {"from_git", job.sync_mode == k_sync_git},
                            {"from_parts", job.sync_mode == k_sync_folder},
                            {"user", job.sync_user.empty() ? "git" : job.sync_user}});
  }
}

} // namespace dtrain::kubernetes
