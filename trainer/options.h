// dtrain-trainer's command line.
#pragma once

#include <cstdint>
#include <string>

#include "submit/option_table.h"
#include "trainer/comm/communicator.h"

namespace trainer {

struct TrainerOptions {
  std::string data = "fashion-mnist";
  std::int64_t epochs = 20;
  std::int64_t steps = 0; ///< 0: as many as the epochs take.
  std::int64_t batch_size = 64;
  double learning_rate = 1e-3;
  std::int64_t seed = 0;
  std::string device = "auto";
  std::string transport = "auto";
  std::int64_t bucket_kib = 128;
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
  std::string logdir;
  std::int64_t log_every = 100;
  bool no_progress = false;
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;
  bool resume = false;
  double benchmark = 0;
  bool benchmark_gemm = false;
  bool help = false;
  bool version = false;
};

/// The table that --help, the man page and Tab completion are made from, and that sets `options`.
dtrain::CommandTable trainer_command(TrainerOptions& options);

/// Parses and checks argv. Throws dtrain::UsageError or trainer::UsageError.
/// With --help or --version, only that field means anything.
TrainerOptions parse_trainer_options(const std::vector<std::string>& args);

CommOptions comm_options(const TrainerOptions& options);

/// The program's version, "0.1.0".
std::string trainer_version();

} // namespace trainer
