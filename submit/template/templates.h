// The templates that a job is made from: the built-in ones, and those that a user put in their
// place, with the variables of --set. Pure: backends/support/user/template_files.h reads the files.
#pragma once

#include "submit/template/template_kind.h"

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct UserTemplate {
  std::string path; ///< Path of the file, for messages.
  std::string text;
};

struct Templates {
  std::map<std::string, UserTemplate, std::less<>> own; ///< Keyed by name: "ENGINE/job.yaml".
  std::vector<std::string> values;                      ///< KEY=VALUE of --set.
};

/// The variables that --set gives: whole numbers, true and false as such, JSON's "…" as the text
/// that it quotes, all else as the text that it is; of a key given twice the last. Throws
/// UsageError naming the flag where a KEY is no variable's name.
nlohmann::json template_values(const std::vector<std::string>& texts);

/// What an engine declares about its templates, in its own folder.
struct TemplateRules {
  /// True for what tells the job from others in a document, which a user's template must keep: the
  /// scalar of `key` in the map at `path` ("metadata.labels"; empty: the document's own).
  bool (*is_identity)(std::string_view path, std::string_view key) = nullptr;
  std::string_view list = ""; ///< The list at that path is to stay as long as it is, likewise.
  std::vector<TemplateKind> kinds = {}; ///< Kinds beside template_kinds().
};

/// Fills in the template of that name with `data` and the values. Throws UsageError
/// - as render_template does, naming the file of the template,
/// - for a value that has the name of one in the data,
/// - if a user's template lost what the rules want kept.
std::string fill_template(const Templates& templates, const std::string& name,
                          const nlohmann::json& data, const TemplateRules& rules);

/// Throws UsageError for a value that none of the user's templates mentions.
void require_values_used(const Templates& templates);

/// False for the few that are not part of a job's plan, and are the same for all jobs.
bool is_fillable(std::string_view name);

} // namespace dtrain
