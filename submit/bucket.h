// A bucket of an object store that speaks Amazon's S3, as data of a job:
//
//   s3://BUCKET/PREFIX?endpoint=https://minio.example.org&region=us-east-1
//
// https://docs.aws.amazon.com/AmazonS3/latest/API
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

inline constexpr std::string_view k_default_region = "us-east-1";

struct Bucket {
  std::string scheme; ///< "s3" or "oss", Alibaba Cloud's, which speaks S3 too.
  std::string name;
  std::string prefix;           ///< The folder in it; empty: all of it.
  std::string endpoint;         ///< "https://HOST[:PORT]"; empty: the cloud's own.
  std::string region;           ///< Empty: k_default_region.
  std::string credentials_file; ///< In Amazon's format; empty: see bucket_keys.h.

  /// "s3://BUCKET/PREFIX"
  std::string shown() const;
  /// With all that was said of it: what parse_bucket reads.
  std::string text() const;
  /// "https://HOST[:PORT]" with the bucket's name in the host or behind it, no slash at the end.
  std::string url() const;
};

/// True for s3://… and oss://…
bool is_bucket(std::string_view source);

/// Throws UsageError naming `flag` where it is none.
Bucket parse_bucket(const std::string& flag, const std::string& source);

/// Those of the job's data.
std::vector<Bucket> buckets_of(const JobSpec& job);

/// With what is not said taken from the environment, as the clouds' own tools do:
/// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION; OSS_ENDPOINT, OSS_REGION.
/// Throws UsageError naming `flag` where an oss:// bucket has neither region nor endpoint.
Bucket completed(const std::string& flag, Bucket bucket);

} // namespace dtrain
