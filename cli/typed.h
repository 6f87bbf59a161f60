// A command line before it is parsed, whole or half typed: where it looks, and which of a command's
// flags are for its backend. For --help and Tab.
#pragma once

#include "cli/target.h"

#include <string>
#include <vector>

namespace dtrain {

/// The backend and profile given by the words typed so far, or by the environment.
struct Typed {
  TargetOptions target;
  std::string job; ///< The first word that is no flag.
};

/// Reads half a command line: unlike parse_options it knows only these flags and refuses nothing.
Typed read_typed(const std::vector<std::string>& args);

/// The engine that the words, the environment or the profile name; null: none of them does.
const Engine* named_engine(const Context& context, const std::vector<std::string>& args);

/// Hides the flags that the engine does not take, and has its own words in the others' help.
void show_only(CommandTable& table, const Engine& engine);

} // namespace dtrain
