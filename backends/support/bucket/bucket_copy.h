// A bucket's copy in a folder, which is brought up to date where it is there already.
#pragma once

#include "backends/support/bucket/bucket_keys.h"
#include "backends/support/progress.h"
#include "submit/bucket.h"

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

/// Makes `folder`, which is made, hold what the bucket does: a file of an object's size and time is
/// not brought again; files that no object stands for are kept or removed. A file is replaced when
/// the new one is whole. Throws as require_bucket does, and Error for what cannot be written; what
/// was brought until then stays, for the next time.
CopyProgress copy_bucket(const Bucket& bucket, const BucketKeys& keys, const std::string& folder,
                         Others others, const CopySink& tell);

/// Where this machine keeps its copy of the bucket for jobs: $XDG_CACHE_HOME/dtrain/data/….
std::string bucket_folder(const Bucket& bucket);

} // namespace dtrain
