#include "cli/context.h"

#include <fmt/format.h>

namespace dtrain {

void Context::note(std::string_view line) const {
  out.flush();
  err.write(fmt::format("{}\n", line));
  err.flush();
}

void Context::complain(std::string_view message) const {
  note(fmt::format("{} {}", styled(err.terminal(), Style::red, program + ":"), message));
}

} // namespace dtrain
