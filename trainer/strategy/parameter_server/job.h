// A job with parameter servers, as one of its tasks reads it from environment and flags.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/data/locate.h"
#include "trainer/monitor/outputs.h"
#include "trainer/run/run_options.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

/// A line for the log.
using Notice = std::function<void(const std::string&)>;

struct PsTask {
  std::vector<std::string> servers; ///< host:port
  std::vector<std::string> workers;
  std::string chief; ///< Empty: none.
  enum class Role { server, worker, chief } role = Role::worker;
  int index = 0;
  int local_rank = 0; ///< Of a worker: the GPU that it takes.
  std::string token;
};

struct PsJob {
  PsTask task;
  RunOptions run;
  DataOptions data;
  OutputOptions outputs;
  PsPolicy policy;
  std::string device = "auto";
  bool shared_memory = true; ///< Between a server and workers of one host.
  std::string snapshot_dir;  ///< Of the servers; empty: none.
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
  bool is_benchmark = false; ///< Train on synthetic images, and print samples/s.

  std::int64_t batch_size() const { return run.batch_size() * run.accumulation_steps; }
  std::int64_t global_batch() const {
    return batch_size() * static_cast<std::int64_t>(task.workers.size());
  }
};

} // namespace trainer
