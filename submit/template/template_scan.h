// The tags of a Mustache template, and the rule that keeps values from changing its structure:
// a value is quoted as a whole (quote.h), so its tag must stand where a whole scalar or word can.
#pragma once

#include "submit/template/render.h"

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
  /// How deep the lines of a block literal in its place are indented; 0: none may stand there.
  std::size_t literal_indent = 0;

  /// "{{#name}}"
  std::string text() const;
};

/// A template's text, and which file's line each of its lines is, where partials were put in.
struct TemplateSource {
  std::string name; ///< Of the file; its ending says the kind.
  std::string text;
  std::vector<std::pair<std::string, std::size_t>> lines = {}; ///< Empty: those of `name`.

  /// "FILE:LINE", for messages.
  std::string where(std::size_t line) const;
};

/// All tags in order. Throws UsageError naming file, line and tag where one is not closed or
/// not nested well, and for what is refused: {{{x}}}, {{&x}} and {{=x=}}, and a {{>x}} that was not
/// put in (partials.h).
std::vector<TemplateTag> scan_template(const TemplateSource& source);

/// Throws UsageError where a variable stands inside quotes, a block scalar, a here-document, a
/// comment of sh or next to other text of YAML, so that its value could end what is around it;
/// and where a section opens a quote or bracket that it does not close. Sets literal_indent.
void check_tag_places(const TemplateSource& source, TemplateKind kind,
                      std::vector<TemplateTag>& tags);

} // namespace dtrain
