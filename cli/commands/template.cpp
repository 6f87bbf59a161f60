#include "backends/support/user/template_files.h"
#include "cli/commands.h"
#include "cli/output/output_option.h"
#include "cli/output/records.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

struct TemplateListOptions {
  std::string output;
};

struct TemplateOptions {
  std::string name;
  std::string folder;
  bool replace = false;
};

Option name_argument(std::string& name) {
  return {.flags = "NAME",
          .target = &name,
          .help = "A template from 'dtrain template list', or a backend for all of its templates",
          .complete = Complete::template_name,
          .required = true,
          .positional = true};
}

CommandTable template_list_table(TemplateListOptions& options) {
  return {.name = "template list",
          .summary = "List the templates that jobs are made from",
          .description =
              "Lists the templates built into dtrain, one folder per backend, and your own files "
              "that replace them: those in the folder templates beside the settings.",
          .examples = {"dtrain template list"},
          .options = {output_option(options.output, {"json", "yaml"})}};
}

CommandTable show_table(TemplateOptions& options) {
  return {.name = "template show",
          .summary = "Print a template",
          .description = "Prints a built-in template before it is rendered. 'dtrain submit "
                         "--dry-run' prints what it becomes for a job.",
          .examples = {fmt::format("dtrain template show {}/job.yaml", default_backend())},
          .options = {name_argument(options.name)}};
}

CommandTable copy_table(TemplateOptions& options) {
  return {
      .name = "template copy",
      .summary = "Copy a template, to change it",
      .description =
          "Copies a built-in template to DIR/BACKEND/NAME, to change it and use it by 'dtrain "
          "submit --template=DIR'. A copy in the folder templates beside the settings ('dtrain "
          "config path' prints their place) applies to every job.\n\n{{x}} is a variable, which "
          "dtrain quotes as YAML, JSON or the shell needs it: write no quotes around it. {{#x}} … "
          "{{/x}} is rendered if x is true, and once for each item of a list; {{^x}} … {{/x}} if "
          "it is not. Your own variables get their values from --set=KEY=VALUE: whole numbers, "
          "true and false keep their type, quoted text such as \"8\" and all else is text. Keep "
          "the job's name and the labels named dtrain/: dtrain finds the job by them. {{>FILE}} on "
          "a line of its own includes the template FILE of the same folder, at that indentation: "
          "copy the file that you change.",
      .examples = {fmt::format("dtrain template copy {}/job mine", default_backend()),
                   fmt::format("$EDITOR mine/{}/job.yaml", default_backend()),
                   "dtrain submit --template=mine --set=team=vision --dry-run"},
      .options = {
          name_argument(options.name),
          {.flags = "DIR",
           .target = &options.folder,
           .help = "Folder to copy to; it is created",
           .complete = Complete::directory,
           .required = true,
           .positional = true},
          {.flags = "--replace", .target = &options.replace, .help = "Overwrite existing files"}}};
}

int run_template_list(Context& context, const TemplateListOptions& options) {
  std::vector<Record> rows;
  for (const auto& builtin : builtin_templates()) {
    const fs::path own = context.template_folder() / builtin.name;
    std::error_code error;
    const bool is_own = is_fillable(builtin.name) && fs::exists(own, error);
    rows.push_back({{"name", std::string(builtin.name)},
                    {"from", is_own ? own.string() : std::string("built in")}});
  }
  print_records(context.out, {"name", "from"}, rows, options.output);
  return 0;
}

int run_show(Context& context, const TemplateOptions& options) {
  for (const auto& builtin : find_templates(options.name)) {
    context.out.write(builtin.text);
  }
  return 0;
}

void write_new(const fs::path& path, std::string_view text, bool replace) {
  constexpr mode_t k_mode = 0644;
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL), k_mode);
  if (fd < 0 && errno == EEXIST) {
    throw UsageError(fmt::format("{} exists: overwrite it with --replace, or choose another folder",
                                 printable(path.string())));
  }
  const bool good =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int problem = errno;
  if (fd >= 0) {
    close(fd);
  }
  if (!good) {
    throw Error(
        fmt::format("cannot write {}: {}", printable(path.string()), std::strerror(problem)));
  }
}

int run_copy(Context& context, const TemplateOptions& options) {
  for (const auto& builtin : find_templates(options.name)) {
    if (!is_fillable(builtin.name)) {
      throw UsageError(
          fmt::format("{} is the same for every job and cannot be replaced", builtin.name));
    }
    const fs::path path = fs::path(options.folder) / builtin.name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      throw Error(fmt::format("cannot make the folder {}: {}",
                              printable(path.parent_path().string()), error.message()));
    }
    write_new(path, builtin.text, options.replace);
    context.out.write(
        fmt::format("template/{} copied to {}\n", builtin.name, printable(path.string())));
  }
  return 0;
}

} // namespace

Invocation template_list_command() { return bind(template_list_table, run_template_list); }
Invocation template_show_command() { return bind(show_table, run_show); }
Invocation template_copy_command() { return bind(copy_table, run_copy); }

} // namespace dtrain
