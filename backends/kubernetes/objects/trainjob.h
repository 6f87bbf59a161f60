// --api=trainjob: the job as a TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1), whose
// controller makes the JobSet of jobset.h:
//
//   TrainJob         NAME  owns all else
//   TrainingRuntime  NAME  the JobSet as a template; made first, since a TrainJob must have one
//   JobSet           NAME  made by the controller, and read as the one of --api=jobset is
//
// Pure.
#pragma once

#include "backends/job_status.h"
#include "submit/job_spec.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

inline constexpr const char* k_trainer_group = "trainer.kubeflow.org";
inline constexpr const char* k_trainer_version = "v1alpha1";
inline constexpr const char* k_trainjob = "TrainJob";
inline constexpr const char* k_training_runtime = "TrainingRuntime";

bool is_trainjob(const JobSpec& job);

/// The TrainJob, and its runtime, from which the controller makes this JobSet.
nlohmann::json trainjob_of(const nlohmann::json& set);
nlohmann::json training_runtime_of(const nlohmann::json& set);

/// Whether a TrainJob's controller made the JobSet.
bool is_of_trainjob(const nlohmann::json& set);

/// The JobSet of a TrainJob that has none yet, and whether a JobSet is one.
nlohmann::json set_to_be(const nlohmann::json& trainjob, const nlohmann::json& runtime);
bool is_to_be(const nlohmann::json& set);

/// TrainJobs without one of these JobSets, and the JobSets that they will have; none for a TrainJob
/// whose runtime is not in this list.
std::vector<nlohmann::json> without_set(const std::vector<nlohmann::json>& trainjobs,
                                        const std::vector<nlohmann::json>& sets);
std::vector<nlohmann::json> sets_to_be(const std::vector<nlohmann::json>& trainjobs,
                                       const nlohmann::json& runtimes);

std::string trainjobs_path(std::string_view namespace_name); ///< All namespaces if empty.
std::string trainjob_path(const JobRef& job);
std::string training_runtimes_path(std::string_view namespace_name);
std::string training_runtime_path(const JobRef& job);

} // namespace dtrain::kubernetes
