// Volumes of a job's Pods besides dtrain's own: data, code, and files of the submitter.
#pragma once

#include "submit/job_spec.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Adds to job.yaml's data: `claims`, `host_paths`, `shares` (NFS), `csi`, `buckets`, `files` (of
/// the Secret), `mounts` of all of them, and `code`, once where code is brought. Throws UsageError
/// for a mount that cannot be read.
void add_volumes(const JobSpec& job, nlohmann::json& data);

/// The claims of --data, which must exist.
std::vector<std::string> claims_of(const JobSpec& job);

/// Where code is unpacked: the working directory if it is absolute, else /root/code for root, who
/// alone may enter /root, and /code for others.
std::string code_folder(const JobSpec& job);

/// Where the command starts; empty: as the image says.
std::string start_folder(const JobSpec& job);

/// The Secret's key of --config-file number `index`.
std::string file_key(std::size_t index);

/// The Secret's key of what gives access to the job's bucket number `index`: its id, secret or
/// session-token.
std::string bucket_key(std::size_t index, const char* what);

} // namespace dtrain::kubernetes
