#include "backends/kubernetes/yaml_json.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <cstdint>

namespace dtrain::kubernetes {
namespace {

nlohmann::json scalar_to_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() != "?") { // Quoted, or with a tag of its own.
    return text;
  }
  if (text.empty() || text == "~" || text == "null") {
    return nullptr;
  }
  if (text == "true" || text == "false") {
    return text == "true";
  }
  bool looks_numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (looks_numeric) {
    std::int64_t integer = 0;
    if (YAML::convert<std::int64_t>::decode(node, integer)) {
      return integer;
    }
    double real = 0;
    if (YAML::convert<double>::decode(node, real)) {
      return real;
    }
  }
  return text;
}

} // namespace

nlohmann::json yaml_to_json(const YAML::Node& node) {
  switch (node.Type()) {
  case YAML::NodeType::Scalar:
    return scalar_to_json(node);
  case YAML::NodeType::Sequence: {
    auto list = nlohmann::json::array();
    for (const YAML::Node& item : node) {
      list.push_back(yaml_to_json(item));
    }
    return list;
  }
  case YAML::NodeType::Map: {
    auto object = nlohmann::json::object();
    for (const auto& entry : node) {
      object[entry.first.Scalar()] = yaml_to_json(entry.second);
    }
    return object;
  }
  default:
    return nullptr;
  }
}

std::vector<nlohmann::json> yaml_documents(const std::string& text, const std::string& origin) {
  std::vector<nlohmann::json> documents;
  try {
    for (const YAML::Node& node : YAML::LoadAll(text)) {
      if (node.IsDefined() && !node.IsNull()) {
        documents.push_back(yaml_to_json(node));
      }
    }
  } catch (const YAML::ParserException& error) {
    throw UsageError(
        fmt::format("{}:{}: not YAML: {}", origin, error.mark.line + 1, printable(error.msg)));
  }
  return documents;
}

} // namespace dtrain::kubernetes
