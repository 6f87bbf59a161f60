// The data of this backend's templates, in small pieces.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/sections.h"
#include "submit/template/templates.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {

/// KEY and VALUE of "KEY=VALUE". Throws UsageError naming the flag where there is no KEY.
std::pair<std::string, std::string> key_value(const std::string& text, const char* flag);

/// `key` and `value` of each.
nlohmann::json pairs(const std::vector<std::string>& texts, const char* flag);

/// User and image pulling of a Pod's containers: `as_user`, `as_root`, `pull_policy`,
/// `pull_secrets`, `has_pull_secrets`.
void add_rights(const JobSpec& job, nlohmann::json& data);

/// The lines by which this backend finds its objects.
const TemplateRules& template_rules();

/// The template "kubernetes/NAME" filled in.
std::string render_document(const Templates& templates, const std::string& name,
                            const nlohmann::json& data);

} // namespace dtrain::kubernetes
