// From a job to the objects that submit() creates. Pure.
//
// submit() adds what is known only once the API has answered: the other objects' ownerReferences to
// the Job, and the Secret's random token.
#pragma once

#include "backends/kubernetes/render/job_secrets.h"
#include "backends/plan.h"

#include <string>
#include <string_view>

namespace dtrain::kubernetes {

/// Names of the Plan's documents; job.yaml comes first, as the others' owner.
inline constexpr const char* k_job_document = "job.yaml";
inline constexpr const char* k_config_document = "configmap.yaml";
inline constexpr const char* k_secret_document = "secret.yaml";
inline constexpr const char* k_group_document = "podgroup.yaml";

/// The ConfigMap's key of the job itself, as a job file.
inline constexpr const char* k_spec_key = "job.yaml";

/// For a user's template from which the job is made: this and its file's name.
inline constexpr std::string_view k_template_key = "template.";

/// Throws UsageError for what Kubernetes would not take: no image, a name too long for its Pods,
/// a toleration or mount that cannot be read, an environment variable without a name.
Plan render_plan(const JobSpec& job, const Templates& templates = {},
                 const JobSecrets& secrets = {});

} // namespace dtrain::kubernetes
