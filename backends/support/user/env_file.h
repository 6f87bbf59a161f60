// Files of variables: KEY=VALUE lines, as --env-file and --secret name them.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <vector>

namespace dtrain {

/// KEY=VALUE of each line. '#' begins a comment line, "export " may stand before the key, and a
/// value may be in single or double quotes, which go. Throws UsageError with flag, file and line.
std::vector<std::string> read_env_file(const std::string& flag, const std::string& path);

/// The secret of that name: a file in $XDG_CONFIG_HOME/dtrain/secrets that nobody else can read.
std::vector<std::string> read_secret(const std::string& name);

/// Whether this machine has a secret of that name; also true for an invalid name, which
/// read_secret() refuses.
bool has_secret(const std::string& name);

/// KEY=VALUE of all the job's --env-file and --secret, in that order; throws as those above do.
std::vector<std::string> read_secret_env(const JobSpec& job);

} // namespace dtrain
