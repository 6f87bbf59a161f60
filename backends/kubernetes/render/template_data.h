// What the templates of this backend are filled with, in small pieces.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/templates.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {

/// Once `content`, or not at all: a section of a template.
nlohmann::json section(bool shown, const nlohmann::json& content);

/// KEY and VALUE of "KEY=VALUE". Throws UsageError naming the flag where there is no KEY.
std::pair<std::string, std::string> key_value(const std::string& text, const char* flag);

/// `key` and `value` of each.
nlohmann::json pairs(const std::vector<std::string>& texts, const char* flag);

/// `name` and `value` of each variable of --env.
nlohmann::json user_environment(const JobSpec& job);

/// What this backend finds its objects by.
const TemplateRules& template_rules();

/// The template "kubernetes/NAME" filled in.
std::string render_document(const Templates& templates, const std::string& name,
                            const nlohmann::json& data);

} // namespace dtrain::kubernetes
