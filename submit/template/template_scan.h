// The tags of a Mustache template, and where they may stand in sh and JSON (yaml_places.h: in
// YAML).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

struct TemplateTag {
  enum class Kind { variable, section, inverted, close, comment } kind = Kind::variable;
  std::string name;
  std::size_t begin = 0; ///< Offset of "{{".
  std::size_t end = 0;   ///< Offset after "}}".
  std::size_t line = 0;  ///< Counted from 1.
  std::size_t open = 0;  ///< A close's section: index among the tags.
  int place = 0;         ///< How the kind's check classifies its place, for quoting.

  /// "{{#name}}"
  std::string text() const;
};

/// A template's text, and which file's line each of its lines is, where partials were put in.
struct TemplateSource {
  std::string name; ///< Name of the file; its ending gives the kind.
  std::string text;
  std::vector<std::pair<std::string, std::size_t>> lines = {}; ///< Empty: those of `name`.

  /// "FILE:LINE", for messages.
  std::string where(std::size_t line) const;
};

/// All tags in order. Throws UsageError naming file, line and tag if one is not closed or not well
/// nested, and for tags that are refused: {{{x}}}, {{&x}} and {{=x=}}, and a {{>x}} that was not
/// expanded (partials.h).
std::vector<TemplateTag> scan_template(const TemplateSource& source);

/// Throws UsageError if a variable stands inside quotes, a here-document or a comment, so that its
/// value could end what is around it; and if a section opens a quote or bracket that it does not
/// close.
void check_sh_tags(const TemplateSource& source, std::vector<TemplateTag>& tags);
void check_json_tags(const TemplateSource& source, std::vector<TemplateTag>& tags);

} // namespace dtrain
