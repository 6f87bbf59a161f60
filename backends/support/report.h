// Telling how far a submission is, where somebody listens.
#pragma once

#include "backends/backend.h"

namespace dtrain {

inline void report(const SubmitSink& tell, const SubmitProgress& progress) {
  if (tell) {
    tell(progress);
  }
}

} // namespace dtrain
