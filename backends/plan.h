// What would be submitted, what it depends on, and how far its submission is.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/templates.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// What would be submitted, byte for byte: --dry-run prints it and submit() carries it out.
struct Plan {
  struct Document {
    std::string name; ///< "job.yaml"
    std::string text;
  };
  JobSpec job;
  Templates templates; ///< What the documents were made from.
  std::vector<Document> documents;
  /// KEY=VALUE of the ranks' environment that no document shows but as ***.
  std::vector<std::string> secret_env;
  std::vector<std::string> notices; ///< One line each, for stderr ("4 GPUs asked, 0 found: …").
};

/// A machine that ranks may be started on.
struct HostSlots {
  std::string name;                           ///< As the engine reaches it: "h1", "me@h1".
  int slots = 0;                              ///< Ranks that it has room for; 0: not said.
  std::vector<std::string> gpus = {};         ///< Those of it that ranks may have; empty: all …
  std::vector<std::string> without_gpus = {}; ///< … but these.

  bool operator==(const HostSlots&) const = default;
};

/// What a plan depends on besides the job: what lies on the machine of who submits it.
struct Surroundings {
  std::string working_dir;                  ///< Where submit was called.
  std::vector<std::string> secret_env;      ///< KEY=VALUE of --env-file and --secret.
  std::vector<std::string> unknown_secrets; ///< Those of --secret that this machine does not keep.
  std::string state_folder = {};            ///< Where jobs keep their files, where they run.
  std::string trainer;                      ///< The bundled trainer's path; empty: not found.
  std::string tensorboard;                  ///< Its program; empty: not found.
  std::vector<std::string> gpus; ///< As CUDA_VISIBLE_DEVICES names them, free ones first.
  std::size_t gpus_in_use = 0;   ///< How many at the end of them other jobs hold.
  /// The folder that shows a share or bucket of --data here, by its URL.
  std::map<std::string, std::string> data_folders;
  std::vector<HostSlots> hosts; ///< That were named for the job, where its engine has no nodes.
  std::string interface;        ///< Of theirs, that ranks are to be reached at; empty: any.
  int host_timeout_ms = 0;      ///< After which a silent one is lost; 0: the engine's own.
};

/// What submit() is at: code is uploaded, data copied. What an engine has no need of is left out.
enum class SubmitStep { check, upload, copy, create };

struct SubmitProgress {
  SubmitStep step = SubmitStep::check;
  bool done = false;
  std::int64_t bytes = 0;
  std::int64_t bytes_total = 0; ///< 0: not known.
  std::string text = {};        ///< "213.0 MB of 500.0 MB"; of a step that is done: what it did.
};

/// One that throws ends the submission, with nothing left behind.
using SubmitSink = std::function<void(const SubmitProgress&)>;

} // namespace dtrain
