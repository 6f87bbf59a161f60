// A job on its way to the queue: what is left in its folder, and what its submit command is given.
//
// submit.sh does all of it in one round trip, over ssh and where there is code to unpack. On this
// machine it is otherwise done here, by a program less, and the command is started before there is
// a script: half of its time goes by until it reads one.
#pragma once

#include "backends/batch/login.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::batch {

struct Submission {
  std::string folder; ///< The job's, below dtrain's own.
  std::string log;    ///< In the folder: what the queue writes to.
  std::string script;
  std::vector<std::pair<std::string, std::string>> files; ///< Besides the script: name and text.
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
/// `script`: submit.sh, with what comes before it.
std::string submit_by_script(const Login& login, const std::string& script, const Submission& job);

} // namespace dtrain::batch
