// The program's exit codes. The errors of submit/errors.h are mapped to them here and nowhere else.
#pragma once

#include <exception>

namespace dtrain {

enum ExitCode {
  k_exit_ok = 0,
  k_exit_error = 1,
  k_exit_usage = 2,
  k_exit_not_found = 3,
  k_exit_engine = 4,
  k_exit_job_failed = 100,
  k_exit_timeout = 124,     ///< As in timeout(1).
  k_exit_interrupted = 130, ///< 128 + SIGINT
  k_exit_pipe = 141,        ///< 128 + SIGPIPE
  k_exit_terminated = 143,  ///< 128 + SIGTERM
};

int exit_code(const std::exception& error);

} // namespace dtrain
