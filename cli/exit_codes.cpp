#include "cli/exit_codes.h"

#include "cli/interrupt.h"
#include "submit/errors.h"

#include <csignal>

namespace dtrain {

int exit_code(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) {
    return k_exit_usage;
  }
  if (dynamic_cast<const NotFound*>(&error) != nullptr) {
    return k_exit_not_found;
  }
  if (dynamic_cast<const EngineError*>(&error) != nullptr) {
    return k_exit_engine;
  }
  if (dynamic_cast<const JobFailed*>(&error) != nullptr) {
    return k_exit_job_failed;
  }
  if (const auto* interrupted = dynamic_cast<const Interrupted*>(&error)) {
    return interrupted->signal == SIGTERM ? k_exit_terminated : k_exit_interrupted;
  }
  return k_exit_error;
}

} // namespace dtrain
