// A job on its way to Slurm: what is left in its folder, and what sbatch is given.
//
// submit.sh does all of it in one round trip, over ssh and where there is code to unpack. On this
// machine it is otherwise done here, by a program less, and sbatch is started before there is a
// script: half of its time goes by until it reads one.
#pragma once

#include "backends/slurm/login.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::slurm {

struct Submission {
  std::string folder; ///< The job's, below dtrain's own.
  std::string log;    ///< In the folder: what Slurm writes to.
  std::string script;
  std::vector<std::pair<std::string, std::string>> files; ///< Besides the script: name and text.
  bool has_code = false;
  std::string code;   ///< A compressed archive.
  std::string record; ///< Without the number that Slurm gives it.
};

/// Dtrain's own folder on this machine, as the scripts have it.
std::string state_folder_here();

/// sbatch on this machine, which waits for the script of a job with that folder and log.
std::unique_ptr<Subprocess> waiting_sbatch(const std::string& folder, const std::string& log);

/// The number that Slurm gives the job; empty: there is a folder of that name. `sbatch`: one that
/// waits; null: none does. Throws EngineError where Slurm refuses it, with no folder left.
std::string submit_here(const Login& login, const Submission& job,
                        std::unique_ptr<Subprocess> sbatch);
std::string submit_by_script(const Login& login, const Submission& job);

} // namespace dtrain::slurm
