// YAML 1.2 core values as JSON, as the API server reads them in a manifest.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace YAML {
class Node;
}

namespace dtrain::kubernetes {

/// Quoted scalars are strings; bare ones are null, booleans, numbers or strings, by their form.
/// Throws YAML::Exception for a tree that its aliases make huge or endless.
nlohmann::json yaml_to_json(const YAML::Node& node);

/// The documents of `text` that are not empty. Throws UsageError naming `origin` and line.
std::vector<nlohmann::json> yaml_documents(const std::string& text, const std::string& origin);

} // namespace dtrain::kubernetes
