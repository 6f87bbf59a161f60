// Settings that ranks must share before they begin, and an error on all of them if they do not.
#pragma once

#include <string>

#include "trainer/collectives/communicator.h"

namespace trainer {

/// Collective, of ranks that all know `text`: throws UsageError with it on every rank, once all
/// have come here: so each reports the error itself, and none reports a lost peer instead.
[[noreturn]] void throw_on_all_ranks(Communicator& communicator, const std::string& text);

/// Collective between workers. Throws UsageError, on all of them, naming two with unlike numbers.
void check_equal_replicas(int replicas, Communicator& between);

/// Collective between workers. Why none of them computes on a GPU though some could, the same on
/// all: "rank 2 (host-b, pid 7) has none"; empty: all have one, or none has.
std::string why_no_gpus(bool has_gpu, Communicator& between);

} // namespace trainer
