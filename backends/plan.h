// The plan of a submission, and its progress.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/templates.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtrain {

/// What is to be submitted, byte for byte: --dry-run prints it and submit() carries it out.
struct Plan {
  struct Document {
    std::string name; ///< "job.yaml"
    std::string text;
  };
  JobSpec job;
  Templates templates; ///< The templates of the documents.
  std::vector<Document> documents;
  /// KEY=VALUE of the ranks' environment that no document shows but as ***.
  std::vector<std::string> secret_env;
  std::vector<std::string> notices; ///< One line each, for stderr ("4 GPUs asked, 0 found: …").
};

/// The steps of submit(): code is uploaded, data copied. An engine leaves out steps that it does
/// not need.
enum class SubmitStep { check, upload, copy, create };

struct SubmitProgress {
  SubmitStep step = SubmitStep::check;
  bool done = false;
  std::int64_t bytes = 0;
  std::int64_t bytes_total = 0; ///< 0: not known.
  std::string text = {};        ///< "213.0 MB of 500.0 MB"; for a finished step, what it did.
};

/// A sink that throws ends the submission, with nothing left behind.
using SubmitSink = std::function<void(const SubmitProgress&)>;

} // namespace dtrain
