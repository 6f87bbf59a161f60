// Arena's flags that submit has none of its own for: refused by name with the reason, or taken
// because what they ask for is always so. The rest of Arena's flags are fields of job_fields.h.
#pragma once

#include "submit/options/man_page.h"
#include "submit/options/option_table.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrain {

/// Options for `dtrain submit`, hidden from its help.
std::vector<Option> arena_options();

/// The flags of Arena v0.15.5's six job types, "-a --annotation" as "--annotation".
const std::vector<std::string>& arena_flags();

/// The names of the backends that take the field of this key: "a, b".
using FieldBackends = std::function<std::string(const std::string& key)>;

/// dtrain-arena(7): each of those flags with what `table`, submit's, makes of it.
std::string man_arena(const ManContext& context, const CommandTable& table,
                      const FieldBackends& backends);

} // namespace dtrain
