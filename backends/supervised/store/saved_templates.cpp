#include "backends/supervised/store/saved_templates.h"

#include "submit/template/render.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

/// From "ENGINE/job.yaml": a job has one backend, so the file's name is enough.
std::string saved_name(std::string_view name) {
  return fmt::format("template.{}", name.substr(name.find('/') + 1));
}

} // namespace

void write_templates(const JobFolder& folder, const Templates& templates) {
  for (const auto& [name, own] : templates.own) {
    folder.write(saved_name(name), own.text);
  }
}

Templates saved_templates(const JobFolder& folder, const JobSpec& job) {
  Templates templates;
  templates.values = job.template_values;
  for (const BuiltinTemplate& built_in : builtin_templates()) {
    if (built_in.name.starts_with(job.backend + "/")) {
      if (auto text = folder.read(saved_name(built_in.name))) {
        templates.own[std::string(built_in.name)] = {
            fmt::format("{}/{}", folder.path(), saved_name(built_in.name)), std::move(*text)};
      }
    }
  }
  return templates;
}

} // namespace dtrain
