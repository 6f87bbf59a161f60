// A job's code, brought into a folder: a Git repository at a ref, or a copy of a folder as it is.
#pragma once

#include "backends/plan.h"
#include "submit/job_spec.h"

#include <string>
#include <utility>

namespace dtrain {

/// Creates and fills `folder` as sync_mode and sync_source say, reporting progress. Returns what
/// was brought, for people. Throws UsageError with git's own message if the repository, ref or
/// folder is not available. A token is never in an argument.
std::string bring_code(const JobSpec& job, const std::string& folder, const SubmitSink& tell);

/// The token of --sync-token-file, or of DTRAIN_GIT_TOKEN; empty: none. Throws UsageError for a
/// file that holds none.
std::string git_token(const JobSpec& job);

/// URL and REF of "URL@REF"; a '@' of a user's name stands before the host. "HEAD" where none is
/// said.
std::pair<std::string, std::string> split_ref(const std::string& source);

/// "models" of ".../models.git": Arena brings the repository to code/models of the working folder,
/// where it is found here too, by a link.
std::string repository_name(const std::string& url);

} // namespace dtrain
