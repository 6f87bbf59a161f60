#include "backends/kubernetes/render/job_secrets.h"

#include "backends/kubernetes/render/volumes.h"
#include "backends/support/bucket/bucket_copy.h"
#include "backends/support/code/code.h"
#include "backends/support/user/env_file.h"
#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <utility>

namespace dtrain::kubernetes {
namespace {

constexpr const char* k_environment = "environment";
constexpr const char* k_git_token = "git-token";

std::string read_file(const std::string& text) {
  const std::string path = parse_mount("--config-file", text).source;
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    throw UsageError(fmt::format("--config-file={}: cannot be read", printable(text)));
  }
  return content;
}

} // namespace

JobSecrets read_secrets(const JobSpec& job) {
  JobSecrets secrets;
  const auto add = [&](const std::vector<std::string>& more) {
    secrets.env.insert(secrets.env.end(), more.begin(), more.end());
  };
  for (const std::string& file : job.env_files) {
    add(read_env_file("--env-file", file));
  }
  for (const std::string& name : job.secrets) {
    if (has_secret(name)) {
      add(read_secret(name));
    } else {
      secrets.of_cluster.push_back(name);
    }
  }
  return secrets;
}

std::map<std::string, std::string> secret_contents(const Plan& plan) {
  std::map<std::string, std::string> contents;
  for (const std::string& variable : plan.secret_env) {
    const std::size_t equals = variable.find('=');
    contents[k_environment] += fmt::format("export {}={}\n", variable.substr(0, equals),
                                           quote_sh(variable.substr(equals + 1)));
  }
  for (std::size_t i = 0; i < plan.job.config_files.size(); ++i) {
    contents[file_key(i)] = read_file(plan.job.config_files[i]);
  }
  const std::vector<Bucket> buckets = buckets_of(plan.job);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const BucketKeys keys = bucket_keys(buckets[i]);
    for (const auto& [what, value] : {std::pair("id", &keys.id), std::pair("secret", &keys.secret),
                                      std::pair("session-token", &keys.session_token)}) {
      if (!value->empty()) {
        contents[bucket_key(i, what)] = *value;
      }
    }
  }
  if (plan.job.sync_mode == k_sync_git) {
    if (std::string token = git_token(plan.job); !token.empty()) {
      contents[k_git_token] = std::move(token);
    }
  }
  return contents;
}

std::map<std::string, std::string> shown_contents(const JobSpec& job, const JobSecrets& secrets) {
  std::map<std::string, std::string> shown;
  for (const std::string& variable : secrets.env) {
    shown[k_environment] += variable.substr(0, variable.find('=') + 1) + k_hidden + "\n";
  }
  for (std::size_t i = 0; i < job.config_files.size(); ++i) {
    shown[file_key(i)] = k_hidden;
  }
  return shown;
}

} // namespace dtrain::kubernetes
