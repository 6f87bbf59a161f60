#include "backends/support/bucket/bucket_keys.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

namespace dtrain {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Keys of one section. Without an id if the file does not exist or has no such keys.
BucketKeys read_keys(const std::string& path, const std::string& section) {
  BucketKeys keys;
  std::ifstream file(path);
  std::string line;
  bool is_ours = false;
  while (std::getline(file, line)) {
    const std::string_view text = trimmed(line);
    if (text.starts_with('[') && text.ends_with(']')) {
      is_ours = trimmed(text.substr(1, text.size() - 2)) == section;
    }
    const std::size_t equals = text.find('=');
    if (!is_ours || equals == std::string_view::npos || text.starts_with('#')) {
      continue;
    }
    const std::string_view key = trimmed(text.substr(0, equals));
    const std::string value(trimmed(text.substr(equals + 1)));
    if (key == "aws_access_key_id") {
      keys.id = value;
    } else if (key == "aws_secret_access_key") {
      keys.secret = value;
    } else if (key == "aws_session_token") {
      keys.session_token = value;
    }
  }
  return keys;
}

} // namespace

BucketVariables bucket_variables(const Bucket& bucket) {
  return bucket.scheme == "oss"
             ? BucketVariables{"OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"}
             : BucketVariables{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
}

BucketKeys bucket_keys(const Bucket& bucket) {
  const std::string chosen = variable("AWS_PROFILE");
  const std::string section = chosen.empty() ? "default" : chosen;
  if (!bucket.credentials_file.empty()) {
    const std::string& path = bucket.credentials_file;
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) {
      throw UsageError(fmt::format("credentials of {}: cannot read {}: {}",
                                   printable(bucket.shown()), printable(path), errno_text()));
    }
    constexpr mode_t k_others = 077;
    if ((info.st_mode & k_others) != 0) {
      throw UsageError(fmt::format("credentials of {}: others can read {}: run chmod 600 {}",
                                   printable(bucket.shown()), printable(path), printable(path)));
    }
    BucketKeys keys = read_keys(path, section);
    if (keys.id.empty() || keys.secret.empty()) {
      throw UsageError(fmt::format("credentials of {}: {} has no aws_access_key_id and "
                                   "aws_secret_access_key in its section [{}]",
                                   printable(bucket.shown()), printable(path), printable(section)));
    }
    return keys;
  }
  const BucketVariables names = bucket_variables(bucket);
  BucketKeys keys = {variable(names.id), variable(names.secret), variable(names.session_token)};
  if (keys.id.empty() && bucket.scheme != "oss") {
    const std::string said = variable("AWS_SHARED_CREDENTIALS_FILE");
    keys = read_keys(said.empty() ? variable("HOME") + "/.aws/credentials" : said, section);
  }
  return keys.secret.empty() ? BucketKeys() : keys;
}

} // namespace dtrain
