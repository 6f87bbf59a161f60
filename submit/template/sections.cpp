#include "submit/template/sections.h"

#include <nlohmann/json.hpp>

namespace dtrain {

using nlohmann::json;

json section(bool shown, const json& content) {
  auto list = json::array();
  if (shown) {
    list.push_back(content);
  }
  return list;
}

json user_environment(const JobSpec& job) {
  auto list = json::array();
  for (const std::string& variable : job.env) {
    const auto equals = variable.find('=');
    list.push_back({{"name", variable.substr(0, equals)}, {"value", variable.substr(equals + 1)}});
  }
  return list;
}

} // namespace dtrain
