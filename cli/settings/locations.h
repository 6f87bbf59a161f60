// Named data and code: made once by `dtrain data add` and `dtrain code add`, kept in the settings
// file beside the profiles, and used by name in --data=NAME:/path and --code=NAME.
#pragma once

#include "cli/settings/settings.h"
#include "submit/bucket.h"
#include "submit/job_spec.h"

#include <string>

namespace dtrain {

/// The location of that name. Throws NotFound with the nearest one; `word` is "data" or "code".
const Values& find_location(const Locations& all, const char* word, const std::string& name);

/// What a location with a bucket says. Throws UsageError naming `flag` where that is none.
Bucket bucket_at(const std::string& flag, const Values& location);

/// Puts in the place of the names that the profile knows what they stand for: a folder becomes one
/// of data_dirs, all else one of data: a claim's name, a bucket's URL, nfs://SERVER/PATH or
/// csi://DRIVER?ATTRIBUTES; `code` (empty: none) becomes sync_mode and what goes with it. A name
/// that is not kept stays: it may be a claim's. Which of these can be mounted is the engine's to
/// say. Throws UsageError for what is none of them, and for code of no such name.
void apply_locations(const Settings& settings, const std::string& profile, const std::string& code,
                     JobSpec& job);

} // namespace dtrain
