// The surroundings of a command beside its options, so that tests can replace them.
#pragma once

#include "backends/engine.h"
#include "cli/output/stream.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dtrain {

struct Context {
  Stream& out; ///< Results.
  Stream& err; ///< Progress, notices and errors.
  std::function<std::unique_ptr<Backend>(std::string_view, const EngineAccess&)> make_backend;
  std::function<Time()> now;
  std::filesystem::path config_file; ///< Need not exist.
  std::string program = "dtrain";    ///< "dtrain submit" once the command is known, for errors.

  /// Folder beside the settings with the user's own templates. Need not exist.
  std::filesystem::path template_folder() const { return config_file.parent_path() / "templates"; }

  /// Prints one line on stderr, after everything written to stdout so far.
  void note(std::string_view line) const;

  /// `note` that names the program and command.
  void complain(std::string_view message) const;
};

} // namespace dtrain
