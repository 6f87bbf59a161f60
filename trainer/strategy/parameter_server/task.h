// One task of a job with parameter servers, as TF_CONFIG says it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/data/locate.h"
#include "trainer/monitor/outputs.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/run/run_options.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

struct PsTask {
  std::vector<std::string> servers; ///< host:port
  std::vector<std::string> workers;
  std::string chief; ///< Empty: none.
  enum class Role { server, worker, chief } role = Role::worker;
  int index = 0;
  int local_rank = 0; ///< Of a worker: the GPU that it takes.
  std::string token;
};

/// A job as one of its tasks sees it.
struct PsJob {
  PsTask task;
  RunOptions run;
  DataOptions data;
  OutputOptions outputs;
  PsPolicy policy; ///< All but its learning rate, which takes the number of samples.
  std::string device = "auto";
  std::string partitioner = "fixed"; ///< As parse_partitioner() takes it.
  bool shared_memory = true;         ///< Between a server and workers of one host.
  std::string snapshot_dir;          ///< Of the servers; empty: none.
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
  bool is_benchmark = false; ///< Train on synthetic images, and print samples/s.

  std::int64_t batch_size() const { return run.batch_size() * run.accumulation_steps; }
  std::int64_t global_batch() const {
    return batch_size() * static_cast<std::int64_t>(task.workers.size());
  }
};

/// What must be alike on workers and chief, whatever the data.
nlohmann::json job_settings(const PsJob& job);

/// Of an update. The same as workers without servers have after as many samples.
LearningRate learning_rate(const PsJob& job, std::size_t samples);

/// Of one worker: as run.steps says, or to see `samples` so often as run.epochs; whole steps.
std::int64_t steps_of(const PsJob& job, std::size_t samples);

} // namespace trainer
