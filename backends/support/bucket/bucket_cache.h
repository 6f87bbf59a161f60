// This machine's copies of buckets, as jobs mount them.
//
//   $XDG_CACHE_HOME/dtrain/data/NAME-DIGEST/
//     current -> 7   what the bucket held when it was asked last
//     7/, 6/         whole copies; one that a job has is never changed nor removed
//     7.lock         held, shared, by each job that has 7
//     next/          a copy that is being made; what was brought of it is kept for the next time
//     lock           held while a copy is made or removed; its time is that of the last use
//
// A copy that no job has becomes the next one in place. Of one in use the next has hard links of
// what did not change, so that only what changed is brought and stored.
#pragma once

#include "backends/support/bucket/bucket_copy.h"
#include "backends/support/os/fd.h"

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// Path of the bucket's copy, which a plan can name before the copy is made.
std::string bucket_folder(const Bucket& bucket);

struct BroughtBucket {
  CopyProgress progress;
  Fd use; ///< While it is open, the copy does not change.
};

/// Updates bucket_folder() to the contents of the bucket, and removes copies unused for k_unused.
/// Throws as BucketCopy does.
BroughtBucket bring_bucket(const Bucket& bucket, const BucketKeys& keys, const CopySink& tell);

inline constexpr std::chrono::days k_unused{30};

/// Removes the copies that nothing has or has used for so long. Their folders; with `dry_run` what
/// they would be.
std::vector<std::string> drop_buckets(std::chrono::seconds unused, bool dry_run);

/// The copies that a job has, from its start to its end.
class BucketUse {
 public:
  BucketUse() = default;
  BucketUse(const BucketUse&) = delete;
  BucketUse& operator=(const BucketUse&) = delete;
  ~BucketUse();

  /// The copy's own folder for a bucket_folder(), the same each time; any other path as it is.
  /// Throws Error where the copy is gone.
  std::string hold(const std::string& path);

 private:
  struct Held {
    std::string folder;
    Fd lock;
  };
  std::map<std::string, Held> held_;
};

} // namespace dtrain
