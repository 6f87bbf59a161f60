#include "cli/commands.h"
#include "cli/output/output_option.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct VersionOptions {
  std::string output;
};

CommandTable version_table(VersionOptions& options) {
  return {.name = "version",
          .summary = "Print the version",
          .description = "Prints the version of dtrain.",
          .examples = {"dtrain version", "dtrain version -o json"},
          .options = {output_option(options.output, {"json", "yaml"})}};
}

int run_version(Context& context, const VersionOptions& options) {
  if (const auto format = data_format(options.output)) {
    context.out.write(version_data(DTRAIN_VERSION, *format));
  } else {
    context.out.write(fmt::format("dtrain {}\n", DTRAIN_VERSION));
  }
  return 0;
}

} // namespace

Invocation version_command() { return bind(version_table, run_version); }

} // namespace dtrain
