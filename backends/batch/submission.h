// A job on its way to the queue: the files in its folder, and the input of its submit command.
//
// submit.sh does all of it in one round trip, over ssh and where there is code to unpack.
// Otherwise, on this machine, it is done here with one program less, and the command is started
// before there is a script: half of its time passes until it reads one.
#pragma once

#include "backends/batch/login.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::batch {

struct Submission {
  std::string folder; ///< The job's, below dtrain's own.
  std::string log;    ///< In the folder: the file to which the queue writes.
  std::string script;
  /// Files beside the script: name and text.
  std::vector<std::pair<std::string, std::string>> files;
  bool has_code = false;
  std::string code;   ///< A compressed archive.
  std::string record; ///< Without the number that the queue gives it.
};

/// The submit command on this machine, which waits for the script of a job with that folder and
/// log.
std::unique_ptr<Subprocess> start_submitter(const Login& login, const std::string& folder,
                                            const std::string& log);

/// The number that the queue gives the job; empty: there is a folder of that name. `submitter`: one
/// that waits; null: none does. Throws EngineError where the queue refuses it, with no folder left.
std::string submit_here(const Login& login, const Submission& job,
                        std::unique_ptr<Subprocess> submitter);
/// `script`: submit.sh, with its prefix.
std::string submit_by_script(const Login& login, const std::string& script, const Submission& job);

} // namespace dtrain::batch
