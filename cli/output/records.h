// Rows with named columns: a table for people, or a list of maps for programs.
#pragma once

#include "cli/output/data.h"
#include "cli/output/stream.h"

#include <string>
#include <vector>

namespace dtrain {

/// `keys` are the columns, in capitals above them; a row without one leaves it empty. `output` is
/// -o's: empty, json or yaml.
void print_records(Stream& out, const std::vector<std::string>& keys,
                   const std::vector<Record>& records, const std::string& output);

} // namespace dtrain
