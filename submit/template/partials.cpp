#include "submit/template/partials.h"

#include "submit/errors.h"
#include "submit/options/nearest.h"
#include "submit/template/render.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrain {
namespace {

constexpr int k_deepest_partials = 8;

struct PartialTag {
  std::string indent;
  std::string file;
};

/// The tag of a line that is nothing else.
std::optional<PartialTag> partial_tag(std::string_view line) {
  std::string_view tag = trimmed(line);
  const auto indent = static_cast<std::size_t>(tag.data() - line.data());
  if (!tag.starts_with("{{>") || !tag.ends_with("}}") || tag.size() < 5) {
    return std::nullopt;
  }
  tag = trimmed(tag.substr(3, tag.size() - 5));
  if (tag.find_first_of(" {}") != std::string_view::npos) {
    return std::nullopt;
  }
  return PartialTag{std::string(line.substr(0, indent)), std::string(tag)};
}

class Builder {
 public:
  Builder(const Templates& templates, WholeTemplate& whole)
      : templates_(templates), whole_(whole) {}

  void add(const std::string& name, const std::string& indent, int depth) {
    const auto own = templates_.own.find(name);
    const bool is_own = own != templates_.own.end();
    const std::string file = is_own ? own->second.path : name;
    const std::string_view text = is_own ? own->second.text : builtin_template(name).text;
    if (is_own && !whole_.has_own) {
      whole_.has_own = true;
      whole_.source.name = file;
    }
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = text.substr(begin, end - begin);
      ++number;
      if (const auto tag = partial_tag(line)) {
        add_partial(name, *tag, indent, depth, fmt::format("{}:{}", printable(file), number));
      } else {
        whole_.source.lines.emplace_back(file, number);
        whole_.source.text.append(line.empty() ? "" : indent).append(line);
        whole_.source.text.append(end < text.size() || depth > 0 ? "\n" : "");
      }
      begin = end + 1;
    }
  }

 private:
  void add_partial(const std::string& name, const PartialTag& tag, const std::string& indent,
                   int depth, const std::string& where) {
    const bool is_elsewhere = tag.file.find('/') != std::string::npos;
    const std::string folder = is_elsewhere ? "" : name.substr(0, name.find('/') + 1);
    std::vector<std::string> known;
    for (const BuiltinTemplate& each : builtin_templates()) {
      if (each.name.starts_with(folder)) {
        known.emplace_back(each.name.substr(folder.size()));
      }
    }
    if (std::find(known.begin(), known.end(), tag.file) == known.end()) {
      const auto near = nearest(tag.file, known);
      throw UsageError(fmt::format("{}: {{{{>{}}}}}: there is no such template{}", where,
                                   printable(tag.file),
                                   near ? fmt::format("; did you mean {{{{>{}}}}}?", *near) : ""));
    }
    if (depth == k_deepest_partials) {
      throw UsageError(fmt::format("{}: {{{{>{}}}}}: partials nest deeper than {}", where, tag.file,
                                   k_deepest_partials));
    }
    add(folder + tag.file, indent + tag.indent, depth + 1);
  }

  const Templates& templates_;
  WholeTemplate& whole_;
};

} // namespace

WholeTemplate put_together(const Templates& templates, const std::string& name) {
  WholeTemplate whole;
  whole.source.name = name;
  Builder(templates, whole).add(name, "", 0);
  return whole;
}

} // namespace dtrain
