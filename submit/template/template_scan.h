// The tags of a Mustache template, and the rule that keeps values from changing its structure:
// a value is quoted as a whole (quote.h), so its tag must stand where a whole scalar or word can.
#pragma once

#include "submit/template/render.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct TemplateTag {
  enum class Kind { variable, section, inverted, close, comment } kind = Kind::variable;
  std::string name;
  std::size_t begin = 0; ///< Offset of "{{".
  std::size_t end = 0;   ///< Offset after "}}".
  std::size_t line = 0;  ///< Counted from 1.
  std::size_t open = 0;  ///< A close's section: index among the tags.

  /// "{{#name}}"
  std::string text() const;
};

/// All tags in order. Throws UsageError naming template, line and tag where one is not closed or
/// not nested well, and for what is refused: {{{x}}}, {{&x}}, {{>x}} and {{=x=}}.
std::vector<TemplateTag> scan_template(std::string_view name, std::string_view text);

/// Throws UsageError where a variable stands inside quotes, a block scalar, a here-document, a
/// comment of sh or next to other text of YAML, so that its value could end what is around it;
/// and where a section opens a quote or bracket that it does not close.
void check_tag_places(std::string_view name, TemplateKind kind, std::string_view text,
                      const std::vector<TemplateTag>& tags);

} // namespace dtrain
