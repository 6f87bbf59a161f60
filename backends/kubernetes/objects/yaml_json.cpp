#include "backends/kubernetes/objects/yaml_json.h"

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

/// Aliases make a small text a tree of any size, and with a loop one without end.
class Converter {
 public:
  nlohmann::json convert(const YAML::Node& node, int depth) {
    if (depth > k_deepest || ++nodes_ > k_most_nodes) {
      throw YAML::Exception(node.Mark(), "its aliases make it too large");
    }
    switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return scalar_to_json(node);
    case YAML::NodeType::Sequence: {
      auto list = nlohmann::json::array();
      for (const YAML::Node& item : node) {
        list.push_back(convert(item, depth + 1));
      }
      return list;
    }
    case YAML::NodeType::Map: {
      auto object = nlohmann::json::object();
      for (const auto& entry : node) {
        object[entry.first.Scalar()] = convert(entry.second, depth + 1);
      }
      return object;
    }
    default:
      return nullptr;
    }
  }

 private:
  static constexpr int k_deepest = 128;
  static constexpr int k_most_nodes = 1'000'000;
  int nodes_ = 0;
};

} // namespace

nlohmann::json yaml_to_json(const YAML::Node& node) { return Converter().convert(node, 0); }

std::vector<nlohmann::json> yaml_documents(const std::string& text, const std::string& origin) {
  std::vector<nlohmann::json> documents;
  try {
    for (const YAML::Node& node : YAML::LoadAll(text)) {
      if (node.IsDefined() && !node.IsNull()) {
        documents.push_back(yaml_to_json(node));
      }
    }
  } catch (const YAML::Exception& error) {
    throw UsageError(
        fmt::format("{}:{}: not YAML: {}", origin, error.mark.line + 1, printable(error.msg)));
  }
  return documents;
}

} // namespace dtrain::kubernetes
