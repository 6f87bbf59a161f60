// A folder of this machine's code on its way to the Pods of a job (--sync-mode=local).
//
//   submit           packs it (support/code_archive.h); a part is a ConfigMap, dtrain-code-DIGEST
//   each Pod         mounts all parts; its init container unpacks them (unpack.sh)
//
// These are objects of the cluster, so that a Pod that starts later (a restart, another node, its
// turn in a queue) finds the code when submit is long gone. A part is named by the digest of its
// contents and never changes: another job with the same part becomes one of its owners, and it is
// deleted with its last owner.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/plan.h"
#include "backends/support/code/code_archive.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Of a job's packed code. An object holds 1 MiB at most, a cluster's store usually 2 GiB.
constexpr std::int64_t k_most_code_bytes = 32'000'000;

/// The folder of --sync-source. Throws as pack_folder() does.
CodeArchive pack_code(const JobSpec& job, const SubmitSink& tell);

/// Names the parts where the Pods in `objects` mount them.
void mount_parts(std::vector<nlohmann::json>& objects, const CodeArchive& code);

/// Creates the parts that the namespace lacks; `owner` (an ownerReference) becomes an owner of all
/// of them. Throws EngineError if one cannot be created, UsageError if another object has its name.
/// Returns what was sent, for people.
std::string store_parts(ApiClient& api, const JobSpec& job, const CodeArchive& code,
                        const nlohmann::json& owner, const SubmitSink& tell);

} // namespace dtrain::kubernetes
