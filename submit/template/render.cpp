#include "submit/template/render.h"

#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/template_kind.h"
#include "submit/template/yaml_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kainjow/mustache.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <functional>

namespace dtrain {
namespace {

namespace mustache = kainjow::mustache;
using Kind = TemplateTag::Kind;

/// A value for a tag: a text, to be quoted, or a number or boolean, which is written bare.
struct Value {
  const TemplateTag* tag;
  bool is_text;
  std::string text;
};

constexpr char k_text = 't'; ///< Prefix of a value in kainjow's data …
constexpr char k_bare = 'b'; ///< … to say which it is.

/// A template in kainjow's form. The name of a tag is its index in the scan, so that an error can
/// name the place; the end of a section has the index of its beginning. Text between tags becomes a
/// tag, too: this letter and its index in `literals`, as kainjow splits text into words, which
/// would take most of the time.
struct Indexed {
  static constexpr char k_literal = 'x';
  std::string text;
  std::vector<mustache::data> literals;
};

std::size_t number_in(std::string_view text) {
  std::size_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

mustache::data to_data(const nlohmann::json& json) {
  switch (json.type()) {
  case nlohmann::json::value_t::object: {
    mustache::data object(mustache::data::type::object);
    for (const auto& [key, value] : json.items()) {
      if (!value.is_null()) {
        object.set(key, to_data(value));
      }
    }
    return object;
  }
  case nlohmann::json::value_t::array: {
    mustache::data list(mustache::data::type::list);
    for (const auto& value : json) {
      list.push_back(to_data(value));
    }
    return list;
  }
  case nlohmann::json::value_t::boolean:
    return mustache::data(json.get<bool>());
  case nlohmann::json::value_t::string:
    return mustache::data(k_text + json.get_ref<const std::string&>());
  default:
    return mustache::data(k_bare + json.dump());
  }
}

/// What is written in place of a value.
using Write = std::function<std::string(Value)>;

/// Looks names up for kainjow, which itself takes an unknown one for an empty value.
class Lookup : public mustache::context<std::string> {
 public:
  Lookup(const mustache::data& data, const TemplateSource& source,
         const std::vector<TemplateTag>& tags, const Indexed& indexed, const Write& write,
         bool enters_sections)
      : context(&data), source_(source), tags_(tags), literals_(indexed.literals), write_(write),
        enters_sections_(enters_sections) {}

  const mustache::data* get(const std::string& index) const override {
    if (index.front() == Indexed::k_literal) {
      return &literals_.at(number_in(std::string_view(index).substr(1)));
    }
    const TemplateTag& tag = tags_.at(number_in(index));
    if (tag.kind != Kind::variable && !enters_sections_) {
      return tag.kind == Kind::inverted ? &yes_ : &no_;
    }
    const mustache::data* found = context::get(tag.name);
    if (found == nullptr) {
      refuse(tag, fmt::format("has no value here; --set={}=VALUE gives it one", tag.name));
    }
    if (tag.kind != Kind::variable) {
      return found->is_string() && found->string_value() == std::string_view(&k_text, 1) ? &no_
                                                                                         : found;
    }
    if (found->is_true() || found->is_false()) {
      written_ = write_({&tag, false, found->is_true() ? "true" : "false"});
    } else if (found->is_string()) {
      const std::string& text = found->string_value();
      written_ = write_({&tag, text.front() == k_text, text.substr(1)});
    } else {
      refuse(tag, fmt::format("is a list or a map; go through it with {{{{#{0}}}}} … {{{{/{0}}}}}",
                              tag.name));
    }
    return &written_;
  }

 private:
  [[noreturn]] void refuse(const TemplateTag& tag, std::string_view why) const {
    throw UsageError(fmt::format("{}: {} {}", source_.where(tag.line), tag.text(), why));
  }

  const TemplateSource& source_;
  const std::vector<TemplateTag>& tags_;
  const std::vector<mustache::data>& literals_;
  const Write& write_;
  bool enters_sections_;
  mutable mustache::data written_{""}; ///< Written out before the next is looked up.
  mustache::data yes_{true};
  mustache::data no_{false};
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

Indexed indexed(std::string_view text, const std::vector<TemplateTag>& tags) {
  Indexed out;
  const auto add_literal = [&](std::string_view literal) {
    if (!literal.empty()) {
      out.text += fmt::format("{{{{{}{}}}}}", Indexed::k_literal, out.literals.size());
      out.literals.emplace_back(std::string(literal));
    }
  };
  std::size_t done = 0;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    TemplateTag tag = tags[i];
    tag.name = fmt::format("{}", tag.kind == Kind::close ? tag.open : i);
    if (tag.kind != Kind::variable) {
      widen_to_line(text, tag);
    }
    add_literal(text.substr(done, tag.begin - done));
    if (tag.kind != Kind::comment) {
      out.text += tag.text();
    }
    done = tag.end;
  }
  add_literal(text.substr(done));
  return out;
}

/// A template that is ready to be filled in, any number of times.
class Filler {
 public:
  Filler(const TemplateSource& source, const std::vector<TemplateTag>& tags,
         const nlohmann::json& data)
      : source_(source), tags_(tags), data_(to_data(data)), indexed_(indexed(source.text, tags)),
        engine_(indexed_.text) {
    engine_.set_custom_escape([](const std::string& written) { return written; });
  }

  std::string fill(const Write& write, bool enters_sections = true) {
    Lookup lookup(data_, source_, tags_, indexed_, write, enters_sections);
    std::string out = engine_.render(lookup);
    if (!engine_.is_valid()) {
      throw UsageError(
          fmt::format("{}: {}", printable(source_.name), printable(engine_.error_message())));
    }
    return out;
  }

 private:
  const TemplateSource& source_;
  const std::vector<TemplateTag>& tags_;
  mustache::data data_;
  Indexed indexed_;
  mustache::mustache engine_;
};

/// Whether some text could be written in lines.
bool has_lines(const nlohmann::json& data) {
  return data.is_structured() ? std::any_of(data.begin(), data.end(), has_lines)
         : data.is_string()   ? literal_yaml(data.get_ref<const std::string&>(), 0).has_value()
                              : false;
}

/// YAML with its values marked.
struct Marked {
  YamlMarks marks;
  std::vector<Value> values = {};
  std::string text = {};
  std::vector<std::size_t> indents = {}; ///< Marks of literals (yaml_places.h).
};

Marked mark(Filler& filler, const TemplateSource& source, YamlMarks::Form form,
            bool enters_sections) {
  Marked marked{YamlMarks(source.text, form)};
  marked.text = filler.fill(
      [&](Value value) {
        marked.values.push_back(std::move(value));
        return marked.marks.written(marked.values.size() - 1);
      },
      enters_sections);
  try {
    marked.indents = yaml_places(marked.text, marked.marks, marked.values.size());
  } catch (const YamlFault& fault) {
    if (fault.mark < marked.values.size()) {
      const TemplateTag& tag = *marked.values[fault.mark].tag;
      throw UsageError(fmt::format("{}: {} {}", source.where(tag.line), tag.text(), fault.what()));
    }
    throw UsageError(fmt::format("{}: {}{}", printable(source.name),
                                 enters_sections ? "" : "without its sections, ", fault.what()));
  }
  return marked;
}

/// Every value quoted; text of several lines in lines where there is room for it.
std::string unmarked(const Marked& marked, const TemplateKind& kind) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t i = 0; i < marked.values.size(); ++i) {
    const Value& value = marked.values[i];
    const std::string written = marked.marks.written(i);
    const std::size_t at = marked.text.find(written, done);
    out.append(marked.text, done, at - done);
    done = at + written.size();
    const auto lines = value.is_text && marked.indents[i] > 0
                           ? literal_yaml(value.text, marked.indents[i])
                           : std::nullopt;
    out += lines ? *lines : value.is_text ? kind.quote(*value.tag, value.text) : value.text;
  }
  return out.append(marked.text, done);
}

std::string render_yaml(Filler& filler, const TemplateSource& source, const TemplateKind& kind,
                        const nlohmann::json& data, TemplateOwner owner) {
  using Form = YamlMarks::Form;
  if (owner == TemplateOwner::user) {
    if (!is_utf8(source.text)) {
      throw UsageError(fmt::format("{}: is not UTF-8", printable(source.name)));
    }
    mark(filler, source, Form::bare, true);
    mark(filler, source, Form::binary, true);
    mark(filler, source, Form::quoted, false);
  } else if (!has_lines(data)) {
    return filler.fill([&](const Value& value) {
      return value.is_text ? kind.quote(*value.tag, value.text) : value.text;
    });
  }
  return unmarked(mark(filler, source, Form::quoted, true), kind);
}

} // namespace

std::string render_template(std::string_view name, std::string_view text,
                            const nlohmann::json& data, const std::vector<TemplateKind>& more) {
  return render_template({.name = std::string(name), .text = std::string(text)}, data, more,
                         TemplateOwner::user);
}

std::string render_template(const TemplateSource& source, const nlohmann::json& data,
                            const std::vector<TemplateKind>& more, TemplateOwner owner) {
  const TemplateKind& kind = template_kind(source.name, more);
  std::vector<TemplateTag> tags = scan_template(source);
  if (!kind.is_yaml()) {
    kind.check(source, tags);
  }
  Filler filler(source, tags, data);
  if (kind.is_yaml()) {
    return render_yaml(filler, source, kind, data, owner);
  }
  return filler.fill([&](const Value& value) {
    return value.is_text ? kind.quote(*value.tag, value.text) : value.text;
  });
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
      fmt::format("no template '{}'; available: {}", printable(name), fmt::join(known, ", ")));
}

} // namespace dtrain
