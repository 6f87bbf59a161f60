// `dtrain help`, and --help for what is no single command.
#pragma once

#include "cli/context.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// All commands by group, as `dtrain` alone prints them.
void print_overview(Stream& out);

/// One command, or all of a group ("config"). Throws UsageError for other words.
void print_help(Stream& out, const std::vector<std::string>& words);

} // namespace dtrain
