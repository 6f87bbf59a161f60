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

/// Parses a location with a bucket. Throws UsageError naming `flag` if it is not one.
Bucket bucket_at(const std::string& flag, const Values& location);

/// Replaces names that the profile knows by their locations: a folder goes to data_dirs, everything
/// else to data (a claim's name, a bucket's URL, nfs://SERVER/PATH or csi://DRIVER?ATTRIBUTES);
/// `code` (empty: none) becomes sync_mode and its fields. An unknown name stays, as it may be a
/// claim's. The engine decides which of these can be mounted. Throws UsageError for anything else,
/// and for unknown names of code.
void apply_locations(const Settings& settings, const std::string& profile, const std::string& code,
                     JobSpec& job);

} // namespace dtrain
