#include "submit/template/templates.h"

#include "submit/errors.h"
#include "submit/options/nearest.h"
#include "submit/template/partials.h"
#include "submit/template/render.h"
#include "submit/template/template_kind.h"
#include "submit/template/yaml_places.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace dtrain {
namespace {

using nlohmann::json;

bool is_variable(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// A whole number as JSON and YAML write it: no sign but '-', no leading zeros.
std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool canonical = error == std::errc() && stop == end && std::to_string(number) == text;
  return canonical ? std::optional(number) : std::nullopt;
}

json value_of(const std::string& text) {
  if (text == "true" || text == "false") {
    return text == "true";
  }
  if (const auto number = whole_number(text)) {
    return *number;
  }
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    if (json quoted = json::parse(text, nullptr, false); quoted.is_string()) {
      return quoted;
    }
  }
  return text;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& message) {
  throw UsageError(fmt::format("{}: {}", printable(path), message));
}

std::string scalar(const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : ""; }

/// A line of `built_in` that says whose the job is must be in `own`, too.
void require_identity(const TemplateRules& rules, const std::string& file,
                      const YAML::Node& built_in, const YAML::Node& own, const std::string& path) {
  for (const auto& entry : built_in) {
    const std::string key = scalar(entry.first);
    const std::string at = path.empty() ? key : fmt::format("{}.{}", path, key);
    const YAML::Node other = own.IsMap() ? own[key] : YAML::Node();
    const std::string wanted = scalar(entry.second);
    if (!wanted.empty() && rules.is_identity(path, key) && (!other || scalar(other) != wanted)) {
      refuse_file(file, fmt::format("{} must stay '{}': dtrain finds the job by it", printable(at),
                                    printable(wanted)));
    }
    if (entry.second.IsMap()) {
      require_identity(rules, file, entry.second, other ? other : YAML::Node(), at);
    }
    if (at == rules.list) {
      if (!other || !other.IsSequence() || other.size() != entry.second.size()) {
        refuse_file(file, fmt::format("{} must stay the list of all {}", at, entry.second.size()));
      }
      for (std::size_t i = 0; i < other.size(); ++i) {
        require_identity(rules, file, entry.second[i], other[i], fmt::format("{}[{}]", at, i));
      }
    }
  }
}

void add_names(const json& data, std::vector<std::string>& names) {
  if (data.is_object()) {
    for (const auto& [key, value] : data.items()) {
      names.push_back(key);
      add_names(value, names);
    }
  } else if (data.is_array()) {
    for (const auto& value : data) {
      add_names(value, names);
    }
  }
}

/// In a section that this job does not enter, no tag is looked up: a name there must at least be
/// one that some job has, that is, one of the built-in template.
void require_known_names(const TemplateSource& own, const TemplateSource& built_in,
                         const json& data) {
  std::vector<std::string> known = {"."};
  add_names(data, known);
  for (const TemplateTag& tag : scan_template(built_in)) {
    known.push_back(tag.name);
  }
  for (const TemplateTag& tag : scan_template(own)) {
    const bool has_name =
        tag.kind != TemplateTag::Kind::comment && tag.kind != TemplateTag::Kind::close;
    if (has_name && std::find(known.begin(), known.end(), tag.name) == known.end()) {
      const auto near = nearest(tag.name, known);
      throw UsageError(fmt::format("{}: {} has no value here; {}", own.where(tag.line), tag.text(),
                                   near ? fmt::format("did you mean {{{{{}}}}}?", *near)
                                        : fmt::format("--set={}=VALUE gives it one", tag.name)));
    }
  }
}

YAML::Node load(const std::string& file, const std::string& text) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    refuse_file(file, no_yaml(text, error.mark.line, error.msg));
  }
}

} // namespace

json template_values(const std::vector<std::string>& texts) {
  json values = json::object();
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (equals == std::string::npos || !is_variable(key)) {
      throw UsageError(fmt::format("--set={}: must be KEY=VALUE, KEY of letters, digits and '_'",
                                   printable(text)));
    }
    values[key] = value_of(text.substr(equals + 1));
  }
  return values;
}

std::string fill_template(const Templates& templates, const std::string& name, const json& data,
                          const TemplateRules& rules) {
  const auto [own, has_own] = put_together(templates, name);
  if (!has_own) {
    return render_template(own, data, rules.kinds, TemplateOwner::dtrain);
  }
  const TemplateSource built_in = put_together({}, name).source;
  json all = template_values(templates.values);
  for (const auto& [key, value] : all.items()) {
    if (data.contains(key)) {
      throw UsageError(fmt::format("--set={0}: {0} is a variable of {1} already: choose another "
                                   "name",
                                   key, name));
    }
  }
  all.update(data);
  require_known_names(own, built_in, all);
  std::string text = render_template(own, all, rules.kinds, TemplateOwner::user);
  if (template_kind(name, rules.kinds).is_yaml() && rules.is_identity != nullptr) {
    const std::string ours = render_template(built_in, data, rules.kinds, TemplateOwner::dtrain);
    require_identity(rules, own.name, YAML::Load(ours), load(own.name, text), "");
  }
  return text;
}

void require_values_used(const Templates& templates) {
  std::vector<std::string> known;
  for (const auto& [name, own] : templates.own) {
    for (const TemplateTag& tag : scan_template(put_together(templates, name).source)) {
      known.push_back(tag.name);
    }
  }
  const json values = template_values(templates.values);
  for (const auto& [key, value] : values.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) {
      continue;
    }
    if (templates.own.empty()) {
      throw UsageError(fmt::format(
          "--set={}: only your own templates have such variables; give one with --template", key));
    }
    const auto near = nearest(key, known);
    throw UsageError(fmt::format("--set={}: no template of yours has {{{{{}}}}}{}", key, key,
                                 near ? fmt::format("; did you mean '{}'?", *near) : ""));
  }
}

bool is_fillable(std::string_view name) {
  return !name.starts_with("launchers/") && !name.starts_with("batch/") &&
         name.find("/commands/") == std::string_view::npos;
}

} // namespace dtrain
