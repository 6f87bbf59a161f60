#include "submit/template/template_kind.h"

#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

template <std::string (*quote)(std::string_view)>
std::string anywhere(const TemplateTag&, std::string_view text) {
  return quote(text);
}

} // namespace

const std::vector<TemplateKind>& template_kinds() {
  static const std::vector<TemplateKind> kinds = {
      {".yaml", anywhere<quote_yaml>, nullptr},
      {".yml", anywhere<quote_yaml>, nullptr},
      {".sh", anywhere<quote_sh>, check_sh_tags},
      {".json", anywhere<quote_json>, check_json_tags},
  };
  return kinds;
}

const TemplateKind& template_kind(std::string_view name, const std::vector<TemplateKind>& more) {
  std::string known;
  for (const auto* kinds : {&template_kinds(), &more}) {
    for (const TemplateKind& kind : *kinds) {
      if (name.ends_with(kind.ending)) {
        return kind;
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.ending);
    }
  }
  throw UsageError(
      fmt::format("template {}: its name must end in one of {}", printable(name), known));
}

} // namespace dtrain
