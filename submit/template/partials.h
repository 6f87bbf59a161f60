// Partials: `{{>FILE}}` on a line of its own is replaced by the template FILE of the same folder
// (`{{>batch/ranks.sh}}`: of another folder), each line indented as the tag is. This happens before
// anything else, so that all rules apply to the whole; messages name the file and line where a line
// comes from.
#pragma once

#include "submit/template/template_scan.h"
#include "submit/template/templates.h"

#include <string>

namespace dtrain {

struct WholeTemplate {
  TemplateSource source;
  bool has_own = false; ///< Some of it is a user's.
};

/// The template of that name, "ENGINE/job.yaml", a user's where there is one, and likewise its
/// partials. Throws UsageError naming file and line for a partial that is not there, or of itself.
WholeTemplate put_together(const Templates& templates, const std::string& name);

} // namespace dtrain
