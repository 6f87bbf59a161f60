// Pieces of template data that several engines use.
#pragma once

#include "submit/job_spec.h"

#include <nlohmann/json_fwd.hpp>

namespace dtrain {

/// `content` once, or nothing: a section of a template.
nlohmann::json section(bool shown, const nlohmann::json& content);

/// `name` and `value` of each variable of --env.
nlohmann::json user_environment(const JobSpec& job);

} // namespace dtrain
