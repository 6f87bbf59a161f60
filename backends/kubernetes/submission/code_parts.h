// A folder of this machine's code on its way to the Pods of a job (--sync-mode=local).
//
//   submit           packs it (support/code_archive.h); a part is a ConfigMap, dtrain-code-DIGEST
//   each Pod         mounts all parts; its init container unpacks them (unpack.sh)
//
// Objects of the cluster, so that a Pod that comes later (a restart, another node, a queue's turn)
// finds the code when submit is long gone. A part is named by what it holds and never changes: a
// job that has the same part becomes one more of its owners, and the last one's deletion deletes
// it.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/plan.h"
#include "backends/support/code/code_archive.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Of a job's code when packed. An object holds 1 MiB at most, a cluster's store 2 GiB as a rule.
constexpr std::int64_t k_most_code_bytes = 32'000'000;

/// The folder of --sync-source. Throws as pack_folder() does.
CodeArchive pack_code(const JobSpec& job, const SubmitSink& tell);

/// Names the parts where the Pods in `objects` mount them.
void mount_parts(std::vector<nlohmann::json>& objects, const CodeArchive& code);

/// Makes the parts that the namespace lacks, of all of which `owner` (an ownerReference) becomes an
/// owner. Throws EngineError where one cannot be made, UsageError where another object has its
/// name. Returns what was sent, for people.
std::string store_parts(ApiClient& api, const JobSpec& job, const CodeArchive& code,
                        const nlohmann::json& owner, const SubmitSink& tell);

} // namespace dtrain::kubernetes
