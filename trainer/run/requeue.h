// Making room: a scheduler says by a signal, some time before it ends a job, that the job has to
// give its place away (a time limit, a job of higher priority). Rank 0 then saves a checkpoint at
// the end of the step it is at, and all end with the exit code that asks to be requeued.
#pragma once

#include <string>

#include "trainer/errors.h"

namespace trainer {

/// As sysexits.h has it: no failure, try again (EX_TEMPFAIL).
inline constexpr int k_exit_requeue = 75;

/// What rank 0 throws once its checkpoint is saved.
struct Requeue : Error {
  using Error::Error;
};

/// From now on SIGUSR1 changes nothing: not until heed_requeue() is there a checkpoint to save.
void ignore_requeue();

/// From now on these are noted: "usr1", "term" or "both".
void heed_requeue(const std::string& signals);

bool requeue_is_asked();
/// By which it was: "SIGUSR1".
const char* requeue_signal();

} // namespace trainer
