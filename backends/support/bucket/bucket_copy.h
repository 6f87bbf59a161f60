// A bucket's copy in a folder, which is brought up to date where it is there already.
#pragma once

#include "backends/support/bucket/bucket_client.h"
#include "backends/support/bucket/bucket_keys.h"
#include "backends/support/progress.h"
#include "submit/bucket.h"

#include <map>
#include <string>

namespace dtrain {

/// The path of an object below the folder that gets what the bucket's holds; empty for what is no
/// file: names that end with a slash, as tools make them for folders. Throws Error for one that
/// cannot be a path there.
std::string path_of_key(const Bucket& bucket, const std::string& key);

/// Asks whether the bucket is there, has anything, and is ours to read. Throws EngineError where
/// its store cannot be reached, UsageError with the store's own words where it refuses.
void require_bucket(const Bucket& bucket, const BucketKeys& keys);

enum class Others { keep, remove };

/// What a bucket holds, and folders that are made to hold it.
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

  /// Makes the folder, which is there, hold what the bucket does: a file of an object's size and
  /// time is not brought again; files that no object stands for are kept or removed. A file is
  /// replaced when the new one is whole. Throws as require_bucket does, and Error for what cannot
  /// be written; what was brought until then stays, for the next time.
  CopyProgress bring(const std::string& folder, Others others);

  const CopyProgress& progress() const { return progress_; }
  void report() const;

 private:
  class Delivery;

  BucketClient client_;
  const CopySink& tell_;
  CopyProgress progress_;
  std::map<std::string, BucketObject> objects_; ///< By path.
};

/// list() and bring() into a folder, which is made; another copy into it goes first.
CopyProgress copy_bucket(const Bucket& bucket, const BucketKeys& keys, const std::string& folder,
                         Others others, const CopySink& tell);

} // namespace dtrain
