// What the folder of a queue declares for this room: its name, its environment, how to call its
// submit command, and what its errors mean.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain::batch {

struct QueueSystem {
  std::string_view name;       ///< Its usual name.
  std::string_view engine;     ///< Also the folder of its templates, and of its jobs' files.
  std::string_view script;     ///< "script.sbatch", of a plan, and in the job's folder.
  std::string_view log;        ///< In a job's folder, the file to which the queue writes.
  std::string_view logs;       ///< A pattern: also those of an array's tasks.
  std::string_view forgotten;  ///< "sacct -j", of a job that the queue has forgotten.
  std::string_view ping;       ///< "scontrol ping": says whether the controller answers.
  std::string_view no_contact; ///< A part of what its commands say where it does not.

  /// Set for all commands, so that what they say can be read.
  std::vector<std::pair<std::string, std::string>> environment;

  /// Prefixes removed from the first line of an error; the first that matches counts.
  std::vector<std::string_view> noise;

  /// The command that takes a script on stdin and prints the job's number last, as NUMBER or
  /// NUMBER;CLUSTER. `log`: the path that the queue writes to.
  std::vector<std::string> (*submit_command)(const std::string& log);
};

} // namespace dtrain::batch
