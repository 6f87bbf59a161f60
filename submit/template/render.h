// Fills a Mustache template. `{{x}}` is escaped for the kind of text the template is, so that no
// value can change its structure; `{{{x}}}` and `{{&x}}` are refused. A variable that the data
// does not have is an error that names it.
#pragma once

#include "submit/template/template_kind.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Whose a template is: of ours it is known that its tags stand where values can.
enum class TemplateOwner { user, dtrain };

/// Fills in the template of that name, whose ending gives its kind: one of template_kinds() or of
/// `more`. Values in `data` are strings (escaped), numbers and booleans (written bare), arrays and
/// objects (sections). A string that is not UTF-8 is fine in YAML and sh. Throws UsageError naming
/// template, line and tag.
std::string render_template(std::string_view name, std::string_view text,
                            const nlohmann::json& data, const std::vector<TemplateKind>& more = {});

/// The same for a template whose partials have been expanded (partials.h).
std::string render_template(const TemplateSource& source, const nlohmann::json& data,
                            const std::vector<TemplateKind>& more, TemplateOwner owner);

struct BuiltinTemplate {
  std::string_view name; ///< "ENGINE/job.yaml"
  std::string_view text;
};

/// All templates built into the binary, by name.
const std::vector<BuiltinTemplate>& builtin_templates();

/// One of them. Throws NotFound naming those that exist.
const BuiltinTemplate& builtin_template(std::string_view name);

} // namespace dtrain
