#include "backends/kubernetes/render/template_data.h"

#include "backends/kubernetes/own_fields.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dtrain::kubernetes {

using nlohmann::json;

std::pair<std::string, std::string> key_value(const std::string& text, const char* flag) {
  std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw UsageError(fmt::format("{}={}: must be KEY=VALUE", flag, printable(text)));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

json pairs(const std::vector<std::string>& texts, const char* flag) {
  auto list = json::array();
  for (const std::string& text : texts) {
    auto [key, value] = key_value(text, flag);
    list.push_back({{"key", key}, {"value", value}});
  }
  return list;
}

void add_rights(const JobSpec& job, json& data) {
  const int user = own::run_as_user(job);
  data["as_user"] = section(user > 0, {{"id", user}});
  data["as_root"] = user == 0;
  const std::string& policy = own::image_pull_policy(job);
  data["pull_policy"] = section(!policy.empty(), {{"name", policy}});
  data["pull_secrets"] = json::array();
  for (const std::string& secret : own::image_pull_secrets(job)) {
    data["pull_secrets"].push_back({{"name", secret}});
  }
  data["has_pull_secrets"] = !data["pull_secrets"].empty();
}

const TemplateRules& template_rules() {
  static const TemplateRules rules = {
      .is_identity = [](std::string_view path, std::string_view key) {
        if (path.empty()) {
          return key == "apiVersion" || key == "kind";
        }
        if (path == "metadata" && (key == "name" || key == "namespace")) {
          return true;
        }
        return key.starts_with("dtrain/") || key == "app.kubernetes.io/managed-by";
      }};
  return rules;
}

std::string render_document(const Templates& templates, const std::string& name, const json& data) {
  return fill_template(templates, "kubernetes/" + name, data, template_rules());
}

} // namespace dtrain::kubernetes
