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
  /// The URL with all its parameters, as parse_bucket() reads it.
  std::string text() const;
  /// "https://HOST[:PORT]" with the bucket's name in the host or as the path, without a final
  /// slash.
  std::string url() const;
};

/// True for s3://… and oss://…
bool is_bucket(std::string_view source);

/// Throws UsageError naming `flag` if the URL is not valid.
Bucket parse_bucket(const std::string& flag, const std::string& source);

/// The buckets of the job's data.
std::vector<Bucket> buckets_of(const JobSpec& job);

/// Fills in missing values from the environment, as the clouds' own tools do: AWS_ENDPOINT_URL_S3,
/// AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION; OSS_ENDPOINT, OSS_REGION. Throws UsageError
/// naming `flag` if an oss:// bucket has neither region nor endpoint.
Bucket completed(const std::string& flag, Bucket bucket);

} // namespace dtrain
