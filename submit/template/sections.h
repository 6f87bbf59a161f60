// Pieces of what the templates of several engines are filled with.
#pragma once

#include "submit/job_spec.h"

#include <nlohmann/json_fwd.hpp>

namespace dtrain {

/// Once `content`, or not at all: a section of a template.
nlohmann::json section(bool shown, const nlohmann::json& content);

/// `name` and `value` of each variable of --env.
nlohmann::json user_environment(const JobSpec& job);

} // namespace dtrain
