#include "cli/commands.h"
#include "submit/errors.h"
#include "submit/render.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct TemplateListOptions {};

struct TemplateShowOptions {
  std::string name;
};

CommandTable list_table(TemplateListOptions&) {
  return {.name = "template list",
          .summary = "List the templates that jobs are made from",
          .description = "Lists the templates built into dtrain: one folder a backend.",
          .examples = {"dtrain template list"},
          .options = {}};
}

CommandTable show_table(TemplateShowOptions& options) {
  return {.name = "template show",
          .summary = "Print a template",
          .description = "Prints a template as it is before it is filled in. What it becomes for "
                         "a job is printed by 'dtrain submit --dry-run'.",
          .examples = {"dtrain template show local/job.yaml"},
          .options = {{.flags = "NAME",
                       .target = &options.name,
                       .help = "The template, as 'dtrain template list' prints it",
                       .complete = Complete::template_name,
                       .required = true,
                       .positional = true}}};
}

int run_list(Context& context, const TemplateListOptions&) {
  for (const auto& builtin : builtin_templates()) {
    context.out.write(fmt::format("{}\n", builtin.name));
  }
  return 0;
}

int run_show(Context& context, const TemplateShowOptions& options) {
  std::vector<std::string> known;
  for (const auto& builtin : builtin_templates()) {
    if (builtin.name == options.name) {
      context.out.write(builtin.text);
      return 0;
    }
    known.emplace_back(builtin.name);
  }
  const auto near = nearest(options.name, known);
  throw NotFound(fmt::format("no template '{}'; {}", printable(options.name),
                             near ? fmt::format("did you mean '{}'?", *near)
                                  : std::string("'dtrain template list' shows all")));
}

} // namespace

Invocation template_list_command() { return bind(list_table, run_list); }
Invocation template_show_command() { return bind(show_table, run_show); }

} // namespace dtrain
