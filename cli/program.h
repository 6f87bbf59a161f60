// The program without its process: words in, exit status out.
#pragma once

#include "cli/context.h"

#include <string>
#include <vector>

namespace dtrain {

/// Runs one command line (without argv[0]). Every error ends here, as one line on context.err.
int run_program(Context& context, const std::vector<std::string>& words);

} // namespace dtrain
