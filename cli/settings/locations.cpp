#include "cli/settings/locations.h"

#include "cli/target.h"
#include "submit/errors.h"
#include "submit/options/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace dtrain {
const Values& find_location(const Locations& all, const char* word, const std::string& name) {
  const auto found = all.find(name);
  if (found != all.end()) {
    return found->second;
  }
  std::vector<std::string> known;
  for (const auto& entry : all) {
    known.push_back(entry.first);
  }
  const auto near = nearest(name, known);
  throw NotFound(fmt::format("no {} '{}'; {}", word, printable(name),
                             near ? fmt::format("did you mean '{}'?", *near)
                                  : fmt::format("'dtrain {} list' shows all", word)));
}

Bucket bucket_at(const std::string& flag, const Values& location) {
  const auto value = [&](const char* key) {
    const auto found = location.find(key);
    return found == location.end() ? std::string() : found->second;
  };
  Bucket bucket = parse_bucket(flag, value("bucket"));
  for (const auto& [key, member] :
       {std::pair("endpoint", &Bucket::endpoint), std::pair("region", &Bucket::region),
        std::pair("credentials-file", &Bucket::credentials_file)}) {
    if (const std::string said = value(key); !said.empty()) {
      bucket.*member = said;
    }
  }
  return parse_bucket(flag, bucket.text()); // The parser checks it.
}

namespace {

/// The kind of a source that is not a name: nas://SERVER/PATH, nfs://SERVER/PATH,
/// oss://BUCKET/PREFIX, s3://BUCKET/PREFIX, csi://DRIVER?ATTRIBUTES. Empty for a name.
Values location_of(const std::string& source) {
  const std::size_t scheme_end = source.find("://");
  if (scheme_end == std::string::npos) {
    return {};
  }
  const std::string scheme = source.substr(0, scheme_end);
  const std::string rest = source.substr(scheme_end + 3);
  const std::size_t slash = rest.find('/');
  if ((scheme == "nas" || scheme == "nfs") && slash != 0 && slash != std::string::npos) {
    return {{"nfs", rest.substr(0, slash) + ":" + rest.substr(slash)}};
  }
  if ((scheme == "oss" || scheme == "s3") && slash != 0 && !rest.empty()) {
    return {{"bucket", source}};
  }
  if (scheme == "csi" && !rest.empty()) {
    return {{"csi", rest}};
  }
  throw UsageError(fmt::format("--data={}: must be a name, nas://SERVER/PATH, oss://BUCKET/PREFIX, "
                               "s3://BUCKET/PREFIX or csi://DRIVER, with :/PATH behind it",
                               printable(source)));
}

void apply_data(const Locations& known, JobSpec& job) {
  std::vector<std::string> claims;
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    const auto found = known.find(mount.source);
    const Values said = found == known.end() ? location_of(mount.source) : Values();
    if (found == known.end() && said.empty()) {
      claims.push_back(text);
      continue;
    }
    const Values& location = found == known.end() ? said : found->second;
    const bool read_only = mount.read_only || location.contains("read-only");
    const auto rest = fmt::format(":{}{}", mount.target, read_only ? ":ro" : "");
    if (const auto path = location.find("path"); path != location.end()) {
      job.data_dirs.push_back(path->second + rest);
    } else if (const auto claim = location.find("claim"); claim != location.end()) {
      claims.push_back(claim->second + rest);
    } else if (location.contains("bucket")) {
      if (!read_only) {
        throw UsageError(fmt::format("--data={}: a bucket is copied to the job and nothing is "
                                     "written back; mount it read-only: --data={}:ro",
                                     printable(text), printable(text)));
      }
      claims.push_back(completed("--data", bucket_at("--data", location)).text() + rest);
    } else if (const auto csi = location.find("csi"); csi != location.end()) {
      claims.push_back(fmt::format("csi://{}{}", csi->second, rest));
    } else if (const auto share = location.find("nfs"); share != location.end()) {
      const std::size_t colon =
          std::min(share->second.find(":/"), share->second.size()); // SERVER:/PATH
      claims.push_back(fmt::format("nfs://{}/{}{}", share->second.substr(0, colon),
                                   share->second.substr(std::min(colon + 2, share->second.size())),
                                   rest));
    } else {
      throw UsageError(fmt::format(
          "--data={}: the settings have no address for {}: dtrain data add {} --replace",
          printable(text), printable(mount.source), printable(mount.source)));
    }
  }
  job.data = claims;
}

} // namespace

void apply_locations(const Settings& settings, const std::string& profile, const std::string& code,
                     JobSpec& job) {
  apply_data(settings.data_of(profile), job);
  if (code.empty()) {
    return;
  }
  if (!job.sync_mode.empty() || !job.sync_source.empty()) {
    throw UsageError("--code: cannot be used with --sync-mode or --sync-source; give one of them");
  }
  const Values& location = find_location(settings.code, "code", code);
  const auto value = [&](const char* key) {
    const auto found = location.find(key);
    return found == location.end() ? std::string() : found->second;
  };
  job.sync_mode = location.contains("git") ? k_sync_git : k_sync_folder;
  job.sync_source = location.contains("git") ? value("git") : value("path");
  job.sync_user = job.sync_user.empty() ? value("user") : job.sync_user;
  job.sync_token_file = job.sync_token_file.empty() ? value("token-file") : job.sync_token_file;
}

} // namespace dtrain
