#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/output/output_option.h"
#include "cli/target.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

struct CheckOptions {
  std::string output;
  TargetOptions target;
};

CommandTable check_table(CheckOptions& options) {
  CommandTable table = {
      .name = "check",
      .summary = "Check that jobs can run",
      .description = "Checks what jobs need: tools, GPUs, data, writable folders. On the local "
                     "backend dtrain-trainer check-gpus measures GPUs that no job uses, for some "
                     "seconds. Exits with 4 if a job could not run. Notes say what the backend "
                     "does not support.",
      .examples = {"dtrain check", "dtrain check -o json"},
      .options = {output_option(options.output, {"json", "yaml"})}};
  add_target(table, options.target, true);
  return table;
}

std::string mark(const Terminal& terminal, CheckResult::Level level) {
  switch (level) {
  case CheckResult::Level::ok:
    return styled(terminal, Style::green, "✓");
  case CheckResult::Level::note:
    return "-";
  case CheckResult::Level::warning:
    return styled(terminal, Style::yellow, "!");
  case CheckResult::Level::error:
    return styled(terminal, Style::red, "✗");
  }
  return "?";
}

int run_check(Context& context, const CheckOptions& options) {
  const TargetOptions resolved = resolve_target(context, options.target);
  auto results = open_target(context, resolved).backend->check();
  for (const Lack& lack : find_engine(resolved.backend).cannot) {
    results.push_back({.level = CheckResult::Level::note,
                       .what = std::string(ability_name(lack.ability)),
                       .found = fmt::format("not on {}: it {}", resolved.backend, lack.why)});
  }
  if (const auto format = data_format(options.output)) {
    context.out.write(check_data(results, *format));
  } else {
    std::size_t width = 0;
    for (const auto& result : results) {
      width = std::max(width, result.what.size());
    }
    for (const auto& result : results) {
      context.out.write(fmt::format("{} {:<{}}  {}\n", mark(context.out.terminal(), result.level),
                                    result.what, width, result.found));
    }
  }
  const bool failed = std::any_of(results.begin(), results.end(), [](const CheckResult& result) {
    return result.level == CheckResult::Level::error;
  });
  return failed ? k_exit_engine : k_exit_ok;
}

} // namespace

Invocation check_command() { return bind(check_table, run_check); }

} // namespace dtrain
