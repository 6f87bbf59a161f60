// The list of jobs, for `list` and for `get` without a name.
#pragma once

#include "cli/context.h"
#include "cli/target.h"

#include <string>
#include <vector>

namespace dtrain {

struct ListStyle {
  std::string output; ///< The value of -o.
  bool all_namespaces = false;
  std::vector<std::string> selectors; ///< job_filter.h
  std::vector<std::string> statuses;
  std::string trainer; ///< Empty: any.
  std::string sort;    ///< "name", "status", "duration", "gpus"; empty: newest first.
};

void print_list(Context& context, const Target& target, const ListStyle& style);

} // namespace dtrain
