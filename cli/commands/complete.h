// `dtrain __complete SHELL WORD…`, which the shells' scripts call when Tab is pressed.
#pragma once

#include "cli/context.h"

#include <string>
#include <vector>

namespace dtrain {

/// Prints what may stand for the last of the words. Silent whatever goes wrong: nothing it could
/// say would help in the middle of somebody's command line.
int run_complete(Context& context, const std::vector<std::string>& args);

} // namespace dtrain
