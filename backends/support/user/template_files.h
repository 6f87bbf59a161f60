// A user's own templates, read from their files.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/render.h"
#include "submit/template/templates.h"

#include <filesystem>
#include <string>
#include <vector>

namespace dtrain {

/// Below config_folder(): BACKEND/NAME there takes the place of the built-in of that name.
std::filesystem::path template_folder();

/// The built-in ones that `word` names: "ENGINE/job.yaml", the same without its ending, or
/// "ENGINE" for all of that backend that a user's may replace. Throws NotFound with a hint.
std::vector<BuiltinTemplate> find_templates(const std::string& word);

/// Templates for the job's backend: those in `folder` (which need not exist), overridden by the
/// job's --template options, each a folder or the file of one template, the last one first. Throws
/// UsageError if one of those cannot be read, is not text or replaces no built-in template, and if
/// a --set has no effect.
Templates read_templates(const JobSpec& job, const std::filesystem::path& folder);

} // namespace dtrain
