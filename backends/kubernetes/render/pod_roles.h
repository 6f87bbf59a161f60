// A job's roles with what their Pods ask for.
#pragma once

#include "submit/job_roles.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// What the role does not set is inherited from the job.
struct PodRole : Role {
  std::string image;
  std::string cpu;
  std::string cpu_limit;
  std::string memory;
  std::string memory_limit;
  std::vector<std::string> selectors;
  std::vector<std::string> annotations;
  int port = 0; ///< In TF_CONFIG; 0: not given.
};

/// Those of job_roles(), in their order.
std::vector<PodRole> pod_roles(const JobSpec& job);

/// A job without an image has that of its workers, or of its parameter servers.
void settle_image(JobSpec& job);

} // namespace dtrain::kubernetes
