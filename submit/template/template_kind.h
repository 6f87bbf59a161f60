// A kind of template: how values are written in it, and where they may stand. A value is quoted as
// a whole, so its tag must stand where a whole scalar or word can.
#pragma once

#include "submit/template/template_scan.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct TemplateKind {
  std::string_view ending; ///< Ending of its files' names: ".sh"
  /// A text in the place of the tag. Throws UsageError for one that cannot be written there.
  std::string (*quote)(const TemplateTag& tag, std::string_view text);
  /// Throws UsageError if a value could change what is around its tag. Null: YAML, which is checked
  /// after filling in (yaml_places.h).
  void (*check)(const TemplateSource& source, std::vector<TemplateTag>& tags);

  bool is_yaml() const { return check == nullptr; }
};

/// YAML, sh and JSON, those of all engines.
const std::vector<TemplateKind>& template_kinds();

/// The kind by the name's ending, among those and `more`, an engine's. Throws UsageError for any
/// other.
const TemplateKind& template_kind(std::string_view name,
                                  const std::vector<TemplateKind>& more = {});

} // namespace dtrain
