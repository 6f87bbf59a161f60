// -o, the same on every command that has it.
#pragma once

#include "cli/output/data.h"
#include "submit/options/option_table.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// -o with those of wide, json, yaml and name that the command knows.
Option output_option(std::string& output, std::vector<std::string> formats);

/// Set if `output` asks for data rather than text for people.
std::optional<DataFormat> data_format(const std::string& output);

} // namespace dtrain
