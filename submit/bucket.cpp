#include "submit/bucket.h"

#include "submit/errors.h"
#include "submit/text/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace dtrain {
namespace {

constexpr std::string_view k_s3 = "s3";
constexpr std::string_view k_oss = "oss";

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      return value;
    }
  }
  return "";
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  });
}

bool is_address(std::string_view host) {
  return host.find_first_not_of("0123456789.:") == std::string_view::npos ||
         host.starts_with('[') || host.substr(0, host.find(':')) == "localhost";
}

} // namespace

bool is_bucket(std::string_view source) {
  return source.starts_with("s3://") || source.starts_with("oss://");
}

std::string Bucket::shown() const {
  return fmt::format("{}://{}{}{}", scheme, name, prefix.empty() ? "" : "/", prefix);
}

std::string Bucket::text() const {
  std::string text = shown();
  char before = '?';
  for (const auto& [key, value] : {std::pair("endpoint", &endpoint), std::pair("region", &region),
                                   std::pair("credentials-file", &credentials_file)}) {
    if (!value->empty()) {
      text += fmt::format("{}{}={}", before, key, escape_url(*value));
      before = '&';
    }
  }
  return text;
}

std::string Bucket::url() const {
  const std::string cloud =
      scheme == k_oss
          ? fmt::format("https://s3.oss-{}.aliyuncs.com", region)
          : fmt::format("https://s3.{}.amazonaws.com", region.empty() ? k_default_region : region);
  const std::string base = endpoint.empty() ? cloud : endpoint;
  const std::size_t host = base.find("://") + 3;
  // Alibaba accepts the bucket's name only in the host; self-hosted stores (MinIO, Ceph) often
  // accept it only in the path; and a name with a dot would not match Amazon's certificate.
  const bool in_host =
      (scheme == k_oss || (endpoint.empty() && name.find('.') == std::string::npos)) &&
      !is_address(std::string_view(base).substr(host));
  return in_host ? fmt::format("{}{}.{}", base.substr(0, host), name, base.substr(host))
                 : fmt::format("{}/{}", base, name);
}

Bucket parse_bucket(const std::string& flag, const std::string& source) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("{}={}: {}", flag, printable(source), what));
  };
  Bucket bucket;
  const std::size_t scheme_end = std::min(source.find("://"), source.size());
  bucket.scheme = source.substr(0, scheme_end);
  const std::string rest = source.substr(std::min(scheme_end + 3, source.size()));
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::size_t slash = std::min(rest.find('/'), question);
  bucket.name = rest.substr(0, slash);
  bucket.prefix = slash < question ? rest.substr(slash + 1, question - slash - 1) : "";
  if ((bucket.scheme != k_s3 && bucket.scheme != k_oss) || !is_name(bucket.name)) {
    refuse("must be s3://BUCKET/PREFIX or oss://BUCKET/PREFIX");
  }
  while (bucket.prefix.ends_with('/')) {
    bucket.prefix.pop_back();
  }
  const auto query =
      parse_query(std::string_view(rest).substr(std::min(question + 1, rest.size())));
  if (!query) {
    refuse("must have KEY=VALUE&… after '?'");
  }
  for (const auto& [key, value] : *query) {
    if (key == "endpoint") {
      bucket.endpoint = value;
    } else if (key == "region") {
      bucket.region = value;
    } else if (key == "credentials-file") {
      bucket.credentials_file = value;
    } else {
      refuse(fmt::format("unknown key '{}'; use endpoint, region or credentials-file",
                         printable(key)));
    }
  }
  while (bucket.endpoint.ends_with('/')) {
    bucket.endpoint.pop_back();
  }
  if (!bucket.endpoint.empty() &&
      ((!bucket.endpoint.starts_with("https://") && !bucket.endpoint.starts_with("http://")) ||
       bucket.endpoint.ends_with("://") || holds_password(bucket.endpoint))) {
    refuse("its endpoint must be https://HOST or http://HOST");
  }
  if (!bucket.region.empty() && !is_name(bucket.region)) {
    refuse("its region must be a name such as us-east-1");
  }
  return bucket;
}

std::vector<Bucket> buckets_of(const JobSpec& job) {
  std::vector<Bucket> buckets;
  for (const std::string& text : job.data) {
    const std::string source = parse_mount("--data", text).source;
    if (is_bucket(source)) {
      buckets.push_back(parse_bucket("--data", source));
    }
  }
  return buckets;
}

Bucket completed(const std::string& flag, Bucket bucket) {
  const bool is_oss = bucket.scheme == k_oss;
  if (bucket.endpoint.empty()) {
    bucket.endpoint = is_oss ? first_set({"OSS_ENDPOINT"})
                             : first_set({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
    if (!bucket.endpoint.empty() && bucket.endpoint.find("://") == std::string::npos) {
      bucket.endpoint.insert(0, "https://");
    }
  }
  if (bucket.region.empty()) {
    bucket.region =
        is_oss ? first_set({"OSS_REGION"}) : first_set({"AWS_REGION", "AWS_DEFAULT_REGION"});
  }
  if (is_oss && bucket.endpoint.empty() && bucket.region.empty()) {
    throw UsageError(fmt::format("{}={}: unknown region: set OSS_REGION=cn-hangzhou, or dtrain "
                                 "data add NAME --bucket={} --region=…",
                                 flag, printable(bucket.shown()), printable(bucket.shown())));
  }
  return parse_bucket(flag, bucket.text()); // The parser checks what came from the environment.
}

} // namespace dtrain
