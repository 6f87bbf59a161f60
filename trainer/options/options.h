// dtrain-trainer's command line, as it was given. settings.h makes of it what each part takes;
// nothing but main sees this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "submit/options/option_table.h"
#include "trainer/data/masking.h"
#include "trainer/device/loss_scale.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/options/elasticity.h"

namespace trainer {

/// What only some of DeepSpeed's schedules have, as flags; below 0: not given.
struct ScheduleFlags {
  double total_steps = -1;
  double cosine_to = -1;
  double cycle_down_steps = -1;
  double cycle_stairs = -1;
  double cycle_down_stairs = -1;
  double cycle_decay_steps = -1;
  double cycle_decay_rate = -1;
};

struct TrainerOptions {
  std::string data = "fashion-mnist";
  std::string auto_shard = "auto";
  int classes = 10;
  bool drop_remainder = false;
  std::int64_t epochs = 12;
  std::int64_t steps = 0;            ///< 0: as many as the epochs take.
  std::string config;                ///< DeepSpeed's file; what it says is in the other fields.
  std::vector<std::string> warnings; ///< Of it.
  // Of a batch; 0: not given. settle_batch() makes all three of them and the number of ranks.
  std::int64_t global_batch = 0;
  std::int64_t batch_size = 0;
  std::int64_t accumulation_steps = 0;
  std::vector<std::string> given;           ///< Which of these were flags.
  std::optional<ElasticityOptions> elastic; ///< Where DeepSpeed's file has the global batch chosen.
  std::string model = "mlp";
  std::string hidden; ///< Widths of the MLP's hidden layers, or BERT's; empty: the model's own.
  std::string preset; ///< "": the model's first.
  std::int64_t layers = 0; ///< BERT's; 0: as the preset says, so the next two.
  std::int64_t heads = 0;
  std::int64_t inner = 0;
  std::int64_t max_length = 0; ///< 0: 512, or as --initial-weights has it.
  double dropout = 0.1;
  MaskingOptions masking;
  bool checkpoint_activations = false;
  double norm_epsilon = 0; ///< 0: the model's own.
  std::string optimizer = "adam";
  double momentum = 0.9;
  double weight_decay = 0;
  std::string decay_of = "all";
  double clip_norm = 0;
  std::int64_t zero_stage = 0;
  std::string offload_optimizer = "none"; ///< Or cpu, or a folder.
  std::string offload_param = "none";     ///< Likewise.
  std::string precision = "fp32";
  std::string matmul_precision = "highest"; ///< Or high, or fp8.
  LossScaleOptions loss_scale{.fixed = 0};
  bool consecutive_hysteresis = false; ///< The flag.
  bool no_check_grad_overflow = false; ///< In bf16.
  double learning_rate = 3e-3;
  std::string lr_schedule = "cosine";
  LearningRate schedule;        ///< All of it but peak and kind: what goes by updates.
  ScheduleFlags schedule_flags; ///< Which go before what is in `schedule`.
  std::string warmup_type = "log";
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::int64_t seed = 0;
  std::string strategy = "auto";
  std::string device = "auto";
  std::string communication = "auto";
  std::string transport = "auto";
  std::int64_t tcp_streams = 0;     ///< 0: left open.
  std::int64_t bytes_per_pack = -1; ///< -1: by the model; 0: all in one.
  std::string communication_data_type = "fp32";
  std::string batch_split = "equal";
  std::string devices;
  std::string cross_device_ops = "auto";
  std::string update = "sync";
  std::int64_t backup_workers = 0;
  std::int64_t max_staleness = -1; ///< Steps; -1: no bound.
  std::string snapshot_dir;
  std::int64_t snapshot_every = 1000;
  std::int64_t min_workers = 0; ///< 0: as DTRAIN_MIN_WORKERS says.
  std::int64_t max_workers = 0; ///< 0: as DTRAIN_MAX_WORKERS says.
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
  double collective_timeout = 600;
  std::string collective_log;
  std::string token_file;
  std::string logdir;
  std::string csv;
  std::string timeline;
  std::int64_t log_every = 100;
  bool no_progress = false;
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep = 2;
  std::string save_on_signal = "usr1";
  bool resume = false;
  std::string initial_weights;
  std::string export_folder;
  double benchmark = 0;
  bool benchmark_gemm = false;
  std::int64_t plan = 0; ///< Workers to plan for; 0: train.
  std::int64_t plan_ranks_per_host = 1;
  double plan_bandwidth = 0; ///< GB/s; 0: measured.
  double plan_latency = 0;   ///< Microseconds; 0: measured.
  bool plan_memory = false;
  bool print_routes = false;
  bool deterministic = false;
  bool cuda_launch_blocking = false;
  bool help = false;
  bool version = false;
};

/// The table that --help, the man page and Tab completion are made from, and that sets `options`.
dtrain::CommandTable trainer_command(TrainerOptions& options);

/// Parses and checks argv. Throws dtrain::UsageError or trainer::UsageError.
/// With --help or --version, only that field means anything.
TrainerOptions parse_trainer_options(const std::vector<std::string>& args);

} // namespace trainer
