// `dtrain help`, and --help beyond a single command.
#pragma once

#include "cli/context.h"
#include "submit/options/option_table.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// All commands by group, as `dtrain` alone prints them.
void print_overview(Stream& out);

/// Help for one command, or for all of a group ("config"). Throws UsageError for other words.
void print_help(Context& context, const std::vector<std::string>& words);

/// --help=GROUP of a command, with the flags which the backend takes that the group, `args` or the
/// user's settings name; with all where none is named.
void print_help(Context& context, CommandTable table, const std::vector<std::string>& args,
                const std::string& group);

} // namespace dtrain
