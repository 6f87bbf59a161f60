// What is sent to a job's hosts if they lack it: the bundled trainer and the job's code.
//
//   JOB/payload/                on this machine, packed once, at submission
//     DIGEST/bin, lib           the bundle: the program, its plug-ins, and a glibc for older hosts
//     DIGEST                    a part of the code's archive (support/code/code_archive.h)
//     bundle, parts             the digests, a line each; absent: none
//   ~/.cache/dtrain/ssh/      on a host: what has arrived, by digest, for all jobs of the user, and
//                             checksums; what no longer matches them is sent again
//
// So a trainer of the same build is sent to a host once, and of the code only what has changed.
#pragma once

#include "backends/plan.h"
#include "backends/supervised/store/job_store.h"
#include "backends/support/os/fd.h"

#include <string>
#include <vector>

namespace dtrain::ssh {

/// The trainer's name in its bundle.
inline constexpr const char* k_trainer_file = "bin/dtrain-trainer";

struct Payload {
  Fd folder;                      ///< The folder JOB/payload; none: nothing is sent.
  std::string bundle;             ///< Empty: the hosts have their own program.
  std::vector<std::string> parts; ///< In the archive's order.

  bool empty() const { return bundle.empty() && parts.empty(); }
};

/// Throws Error naming what cannot be read.
void pack_trainer(const JobFolder& job, const std::string& trainer);

/// Returns what it packed, for people. Throws UsageError as pack_folder() does.
std::string pack_code(const JobFolder& job, const std::string& source, const SubmitSink& tell);

/// Opens the payload in a job's folder.
Payload open_payload(int job_folder);

} // namespace dtrain::ssh
