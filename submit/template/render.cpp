#include "submit/template/render.h"

#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/template_scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kainjow/mustache.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <deque>
#include <unordered_map>

namespace dtrain {
namespace {

namespace mustache = kainjow::mustache;
using Kind = TemplateTag::Kind;

std::string quote(TemplateKind kind, const std::string& text) {
  switch (kind) {
  case TemplateKind::yaml:
    return quote_yaml(text);
  case TemplateKind::sh:
    return quote_sh(text);
  case TemplateKind::json:
    return quote_json(text);
  }
  return {};
}

/// The data as kainjow holds it, every string quoted already and every number written out.
mustache::data to_data(TemplateKind kind, const nlohmann::json& json) {
  switch (json.type()) {
  case nlohmann::json::value_t::object: {
    mustache::data object(mustache::data::type::object);
    for (const auto& [key, value] : json.items()) {
      if (!value.is_null()) {
        object.set(key, to_data(kind, value));
      }
    }
    return object;
  }
  case nlohmann::json::value_t::array: {
    mustache::data list(mustache::data::type::list);
    for (const auto& value : json) {
      list.push_back(to_data(kind, value));
    }
    return list;
  }
  case nlohmann::json::value_t::boolean:
    return mustache::data(json.get<bool>());
  case nlohmann::json::value_t::string:
    return mustache::data(quote(kind, json.get_ref<const std::string&>()));
  default:
    return mustache::data(json.dump());
  }
}

/// Texts of several lines by how they are quoted: where there is room, they are written in lines.
using Literals = std::unordered_map<std::string, std::string>;

Literals literals_of(TemplateKind kind, const nlohmann::json& json) {
  Literals literals;
  if (kind != TemplateKind::yaml) {
    return literals;
  }
  if (json.is_structured()) {
    for (const auto& value : json) {
      literals.merge(literals_of(kind, value));
    }
  } else if (json.is_string() && literal_yaml(json.get_ref<const std::string&>(), 0)) {
    const auto& text = json.get_ref<const std::string&>();
    literals.emplace(quote(kind, text), text);
  }
  return literals;
}

/// Looks names up for kainjow, which itself takes an unknown one for an empty value. A tag's name
/// comes as its index in the scan, so that an error can say where.
class Lookup : public mustache::context<std::string> {
 public:
  Lookup(const mustache::data& data, const TemplateSource& source, TemplateKind kind,
         const std::vector<TemplateTag>& tags, const Literals& literals)
      : context(&data), source_(source), empty_(quote(kind, "")), tags_(tags), literals_(literals) {
  }

  const mustache::data* get(const std::string& index) const override {
    std::size_t i = 0;
    std::from_chars(index.data(), index.data() + index.size(), i);
    const TemplateTag& tag = tags_.at(i);
    const mustache::data* found = context::get(tag.name);
    if (found == nullptr) {
      refuse(tag, fmt::format("has no value here; --set={}=VALUE gives it one", tag.name));
    }
    if (tag.kind != Kind::variable) {
      return found->is_string() && found->string_value() == empty_ ? &no_ : found;
    }
    if (found->is_true() || found->is_false()) {
      return found->is_true() ? &true_ : &false_;
    }
    if (!found->is_string()) {
      refuse(tag, fmt::format("is a list or a map; go through it with {{{{#{0}}}}} … {{{{/{0}}}}}",
                              tag.name));
    }
    if (tag.literal_indent > 0) {
      const auto text = literals_.find(found->string_value());
      if (text != literals_.end()) {
        written_.emplace_back(*literal_yaml(text->second, tag.literal_indent));
        return &written_.back();
      }
    }
    return found;
  }

 private:
  [[noreturn]] void refuse(const TemplateTag& tag, std::string_view why) const {
    throw UsageError(fmt::format("{}: {} {}", source_.where(tag.line), tag.text(), why));
  }

  const TemplateSource& source_;
  std::string empty_; ///< The quoted empty string, false as a section.
  const std::vector<TemplateTag>& tags_;
  const Literals& literals_;
  mutable std::deque<mustache::data> written_;
  mustache::data no_{false};
  mustache::data true_{"true"};
  mustache::data false_{"false"};
};

/// A line that holds nothing but a section's tag or a comment goes with its newline (Mustache's
/// rule, which kainjow keeps only for sections that it enters). Widens the tag to that line.
void widen_to_line(std::string_view text, TemplateTag& tag) {
  std::size_t begin = tag.begin;
  while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) {
    --begin;
  }
  const std::size_t end = std::min(text.find_first_not_of(" \t\r", tag.end), text.size());
  const bool line_begins = begin == 0 || text[begin - 1] == '\n';
  const bool line_ends = end == text.size() || text[end] == '\n';
  if (line_begins && line_ends) {
    tag.begin = begin;
    tag.end = std::min(end + 1, text.size());
  }
}

/// The template with every tag named by its index, a section's end by its beginning's.
std::string indexed(std::string_view text, const std::vector<TemplateTag>& tags) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    TemplateTag tag = tags[i];
    tag.name = fmt::format("{}", tag.kind == Kind::close ? tag.open : i);
    if (tag.kind != Kind::variable) {
      widen_to_line(text, tag);
    }
    out += text.substr(done, tag.begin - done);
    out += tag.text();
    done = tag.end;
  }
  out += text.substr(done);
  return out;
}

} // namespace

TemplateKind template_kind(std::string_view name) {
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    return TemplateKind::yaml;
  }
  if (name.ends_with(".sh")) {
    return TemplateKind::sh;
  }
  if (name.ends_with(".json")) {
    return TemplateKind::json;
  }
  throw UsageError(
      fmt::format("template {}: its name must end in .yaml, .sh or .json", printable(name)));
}

std::string render_template(std::string_view name, std::string_view text,
                            const nlohmann::json& data) {
  return render_template({.name = std::string(name), .text = std::string(text)}, data);
}

std::string render_template(const TemplateSource& source, const nlohmann::json& data) {
  const TemplateKind kind = template_kind(source.name);
  std::vector<TemplateTag> tags = scan_template(source);
  check_tag_places(source, kind, tags);
  const mustache::data values = to_data(kind, data);
  const Literals literals = literals_of(kind, data);
  Lookup lookup(values, source, kind, tags, literals);
  mustache::mustache engine(indexed(source.text, tags));
  engine.set_custom_escape([](const std::string& quoted) { return quoted; });
  std::string out = engine.render(lookup);
  if (!engine.is_valid()) {
    throw UsageError(
        fmt::format("{}: {}", printable(source.name), printable(engine.error_message())));
  }
  return out;
}

const BuiltinTemplate& builtin_template(std::string_view name) {
  std::vector<std::string_view> known;
  for (const BuiltinTemplate& builtin : builtin_templates()) {
    if (builtin.name == name) {
      return builtin;
    }
    known.push_back(builtin.name);
  }
  throw NotFound(
      fmt::format("no template '{}': there is {}", printable(name), fmt::join(known, ", ")));
}

} // namespace dtrain
