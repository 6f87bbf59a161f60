// The evaluator of a job: a process outside the cluster that reads checkpoints as they come, scores
// each on the held-out samples, prints it and writes it to LOGDIR/evaluator for TensorBoard.
//
// It takes no part in training and may come, go and come back at any time. It ends with the
// checkpoint of the job's last step; until then it waits, as long as the launcher lets it.
#pragma once

#include "trainer/cluster/cluster.h"
#include "trainer/run/run_options.h"

namespace trainer {

/// Whether TF_CONFIG says that this process is the evaluator. Throws ClusterError.
bool is_evaluator_task(const GetEnv& get);
bool is_evaluator_task();

/// `logdir`: empty for none. Throws UsageError without options.checkpoint_dir, DataError for
/// checkpoints of another run.
void run_evaluator(const RunOptions& options, const std::string& data, const std::string& device,
                   const std::string& logdir);

} // namespace trainer
