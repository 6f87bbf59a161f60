// Telling how far a submission is, and how far files have been copied.
#pragma once

#include "backends/plan.h"

#include <cstdint>
#include <functional>
#include <string>

namespace dtrain {

std::string bytes_text(std::int64_t bytes); ///< "500.0 MB"

/// Reports if somebody listens.
void report(const SubmitSink& tell, const SubmitProgress& progress);

struct CopyProgress {
  std::int64_t files = 0; ///< In the copy so far …
  std::int64_t files_total = 0;
  std::int64_t bytes = 0;
  std::int64_t bytes_total = 0;
  std::int64_t new_files = 0; ///< … and those of them that were not there before.
  std::int64_t new_bytes = 0;
};

/// Called some ten times a second. One that throws ends the work.
using CopySink = std::function<void(const CopyProgress&)>;

/// Tells `tell` of it as a step of a submission; `tell` must outlive it.
CopySink as_step(SubmitStep step, const SubmitSink& tell);

/// "2 files, 1.2 MB; new: 1, 0.1 MB"
std::string copied_text(const CopyProgress& done);

} // namespace dtrain
