// A job with parameter servers, as the task that TF_CONFIG says: ps, worker or chief.
//
// Synchronous: step t of n workers with batch B takes samples [t·n·B, (t+1)·n·B) of the stream that
// data/loader.h describes, worker i those from i·B on, so the job is that of one process with a
// batch of n·B. Asynchronous: each worker takes the same samples, at its own pace. With a chief,
// synchronous or not, workers take the batches that it hands out, see work_ledger.h.
#pragma once

#include <optional>

#include "trainer/cluster/cluster.h"
#include "trainer/strategy/parameter_server/job.h"

namespace trainer {

/// The hello of this task, with the settings that must agree on all tasks, for this many training
/// samples. The learning rate is that of workers without servers after as many samples.
WorkerHello self_of(const PsJob& job, std::uint64_t samples);

/// This task, where TF_CONFIG has parameter servers. Throws ClusterError for servers without a
/// worker, and for a task that is none of the three.
std::optional<PsTask> parameter_server_task();

/// Serves, trains or hands out work until the job is done. A benchmark takes five windows of
/// run.steps / 5 steps, and prints samples/s of all workers.
void run_parameter_server_task(const PsJob& job);

} // namespace trainer
