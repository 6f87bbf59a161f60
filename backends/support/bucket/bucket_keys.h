// Credentials for a bucket's store.
#pragma once

#include "submit/bucket.h"

#include <string>

namespace dtrain {

/// Without an id: anonymous, which only public buckets allow.
struct BucketKeys {
  std::string id;
  std::string secret;
  std::string session_token; ///< Empty: they are not temporary ones.
};

/// The variables that the bucket's cloud keeps them in.
struct BucketVariables {
  const char* id;
  const char* secret;
  const char* session_token;
};
BucketVariables bucket_variables(const Bucket& bucket);

/// The bucket's credentials file; else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (of an oss://
/// bucket OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET), with the session token; else Amazon's own
/// file, ~/.aws/credentials; of a file AWS_PROFILE's section, or [default]. Throws UsageError
/// naming a file that was asked for and cannot be used, and one that others can read.
BucketKeys bucket_keys(const Bucket& bucket);

} // namespace dtrain
