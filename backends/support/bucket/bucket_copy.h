// A bucket's copy in a folder, which is brought up to date where it is there already.
#pragma once

#include "backends/support/bucket/bucket_client.h"
#include "backends/support/bucket/bucket_keys.h"
#include "backends/support/progress.h"
#include "submit/bucket.h"

#include <map>
#include <string>

namespace dtrain {

/// The path of an object below the folder of the copy; empty for names that end with a slash, which
/// tools create for folders. Throws Error for a name that cannot be a path.
std::string path_of_key(const Bucket& bucket, const std::string& key);

/// Asks whether the bucket is there, has anything, and is ours to read. Throws EngineError where
/// its store cannot be reached, UsageError with the store's own words where it refuses.
void require_bucket(const Bucket& bucket, const BucketKeys& keys);

enum class Others { keep, remove };

/// The objects of a bucket, and folders that are made to hold them.
class BucketCopy {
 public:
  BucketCopy(const Bucket& bucket, const BucketKeys& keys, const CopySink& tell);

  /// Asks what there is. Throws as require_bucket does.
  void list();

  /// True where the folder holds just that: each file of its object's size and time.
  bool is_in(const std::string& folder);

  /// Gives the folder `to` those files of `from` that are as the bucket has them, as hard links;
  /// where the file system has none, it gets none.
  void link(const std::string& from, const std::string& to) const;

  /// Makes an existing folder hold what the bucket does: a file with an object's size and time is
  /// not fetched again; files without an object are kept or removed. A file is replaced once the
  /// new one is complete. Throws as require_bucket does, and Error for what cannot be written; what
  /// was fetched until then stays for the next time.
  CopyProgress bring(const std::string& folder, Others others);

  const CopyProgress& progress() const { return progress_; }
  void report() const;

 private:
  class Delivery;

  BucketClient client_;
  const CopySink& tell_;
  CopyProgress progress_;
  std::map<std::string, BucketObject> objects_; ///< Keyed by path.
};

/// list() and bring() into a folder, which is made; another copy into it goes first.
CopyProgress copy_bucket(const Bucket& bucket, const BucketKeys& keys, const std::string& folder,
                         Others others, const CopySink& tell);

} // namespace dtrain
