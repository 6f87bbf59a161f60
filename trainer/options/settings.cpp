#include "trainer/options/settings.h"

#include <charconv>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/checkpoint/hugging_face.h"
#include "trainer/errors.h"
#include "trainer/models/transformer.h"
#include "trainer/options/parts.h"
#include "trainer/strategy/choice.h"

namespace trainer {
namespace {

bool is_split_by_speed(const TrainerOptions& options) { return options.batch_split == "speed"; }

bool wants_own_samples(const TrainerOptions& options) {
  return options.auto_shard == "file" || options.auto_shard == "off";
}

AutoShard parse_shard(const std::string& text) {
  return text == "file"   ? AutoShard::file
         : text == "data" ? AutoShard::data
         : text == "off"  ? AutoShard::off
                          : AutoShard::automatic;
}

std::optional<ElasticLimits> elastic_limits(const TrainerOptions& options, const Cluster& cluster) {
  ElasticLimits limits;
  limits.min_workers =
      options.min_workers > 0 ? static_cast<int>(options.min_workers) : cluster.min_workers;
  limits.max_workers =
      options.max_workers > 0 ? static_cast<int>(options.max_workers) : cluster.max_workers;
  if (limits.max_workers > 0 && limits.max_workers < limits.min_workers) {
    throw UsageError(fmt::format("--max-workers={}: is less than --min-workers={}",
                                 limits.max_workers, limits.min_workers));
  }
  if (options.max_workers > 0 && limits.min_workers == 0) {
    throw UsageError("--max-workers: has no effect without --min-workers");
  }
  return limits.min_workers > 0 && cluster.source != "none" ? std::optional(limits) : std::nullopt;
}

Offload offload_of(const TrainerOptions& options) {
  const auto folder_of = [](const std::string& place) {
    return place == "none" || place == "cpu" ? std::string() : place;
  };
  Offload offload = {folder_of(options.offload_optimizer), folder_of(options.offload_param),
                     options.offload_optimizer == "cpu", options.offload_param == "cpu"};
  if (options.offload_param != "none" && options.zero_stage != 3) {
    throw UsageError(fmt::format(
        "--offload-param={}: needs --zero-stage=3, where ranks have parts of the parameters",
        options.offload_param));
  }
  return offload;
}

void refuse_what_shared_replicas_lack(const TrainerOptions& options) {
  if (options.zero_stage == 0) {
    return;
  }
  const auto refuse = [&](bool given, const char* flag, const char* why) {
    if (given) {
      throw UsageError(fmt::format("--zero-stage={}: cannot be used with {}: {}",
                                   options.zero_stage, flag, why));
    }
  };
  const std::string optimizer = "--optimizer=" + options.optimizer;
  refuse(options.zero_stage > most_stage(parse_rule(options.optimizer)), optimizer.c_str(),
         "it takes norms of whole parameters, which ranks share; use --zero-stage=2");
  refuse(options.zero_stage == 3 && is_split_by_speed(options), "--batch-split=speed",
         "all ranks gather parameters in the same passes");
  refuse((options.plan > 0 && !options.plan_memory) || options.print_routes,
         options.plan > 0 ? "--plan" : "--print-routes",
         "it describes ranks that hold the whole model");
}

void refuse_what_elastic_workers_lack(const TrainerOptions& options, int replicas) {
  if (options.zero_stage > 0 && options.checkpoint_every == 0) {
    throw UsageError(fmt::format("--zero-stage={}: with --min-workers the workers continue from "
                                 "the last checkpoint when one is lost; give --checkpoint-dir=DIR, "
                                 "a folder that all see, and --checkpoint-every=N",
                                 options.zero_stage));
  }
  if (is_split_by_speed(options)) {
    throw UsageError(
        "--batch-split=speed: elastic workers have equal shares; drop it or --min-workers");
  }
  if (replicas > 1) {
    throw UsageError(
        fmt::format("--devices={}: an elastic worker has only one device", options.devices));
  }
  if (options.communication == "mpi" || options.communication == "nccl") {
    throw UsageError(fmt::format("--communication={}: elastic workers need the ring, which can be "
                                 "rebuilt when a worker fails; drop it",
                                 options.communication));
  }
  if (wants_own_samples(options) || options.drop_remainder) {
    throw UsageError("--auto-shard=file or off, or --drop-remainder: elastic workers share one "
                     "stream of samples to its end; use --auto-shard=data");
  }
}

/// By all tasks of the job, as none would come to the others.
void refuse_what_servers_lack(const PsTask& task, const TrainerOptions& options) {
  const auto refuse = [](bool given, const char* flag, const char* instead) {
    if (given) {
      throw UsageError(fmt::format("{}: not supported with parameter servers{}", flag, instead));
    }
  };
  refuse(!options.checkpoint_dir.empty(), "--checkpoint-dir",
         "; its servers save their state in --snapshot-dir");
  refuse(!options.timeline.empty(), "--timeline", "");
  refuse(!options.initial_weights.empty(), "--initial-weights", "");
  refuse(!options.export_folder.empty(), "--export", "");
  refuse(!options.devices.empty(), "--devices", "; start more workers");
  refuse(wants_own_samples(options), "--auto-shard=file or off",
         "; each worker reads all and takes its part");
  refuse(options.optimizer != "adam" || options.weight_decay > 0, "--optimizer or --weight-decay",
         "; its servers use Adam");
  refuse(options.precision != "fp32", "--precision", "");
  refuse(options.matmul_precision != "highest", "--matmul-precision", "");
  refuse(options.offload_optimizer != "none" || options.offload_param != "none",
         "--offload-optimizer or --offload-param", "; its servers keep these in memory");
  refuse(options.zero_stage > 0, "--zero-stage",
         "; its servers already share the optimizer's states");
  refuse(goes_by_updates(parse_schedule(options.lr_schedule)), "a --lr-schedule with a warmup", "");
  const TrainerOptions none;
  refuse(options.beta1 != none.beta1 || options.beta2 != none.beta2 ||
             options.epsilon != none.epsilon,
         "--beta1, --beta2 or --epsilon", "");
  refuse(options.drop_remainder, "--drop-remainder", "; --steps says when to stop");
  refuse(options.communication == "mpi" || options.communication == "nccl",
         "--communication=mpi or nccl", "");
  refuse(is_split_by_speed(options), "--batch-split=speed",
         "; with a chief in TF_CONFIG, fast workers take more batches");
  refuse(options.min_workers > 0 || options.max_workers > 0, "--min-workers or --max-workers",
         ", where workers may come and go anyway");
  const bool sync = options.update == "sync";
  if (sync ? options.max_staleness >= 0 : options.backup_workers > 0) {
    throw UsageError(fmt::format("{} needs --update={}",
                                 sync ? "--max-staleness" : "--backup-workers",
                                 sync ? "async" : "sync"));
  }
  if (options.backup_workers >= static_cast<std::int64_t>(task.workers.size())) {
    throw UsageError(fmt::format("--backup-workers={}: must be fewer than the {} workers",
                                 options.backup_workers, task.workers.size()));
  }
}

} // namespace

std::vector<std::size_t> parse_hidden(const std::string& text) {
  constexpr std::size_t k_widest = 1 << 16;
  std::vector<std::size_t> widths;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::size_t width = 0;
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + at, last, width);
    if (error != std::errc() || stop != last || width < 1 || width > k_widest) {
      throw UsageError(fmt::format("--hidden={}: must be widths of 1 to {}, as in 512,256",
                                   dtrain::printable(text), k_widest));
    }
    widths.push_back(width);
    at = end + 1;
  }
  return widths;
}

namespace {

TransformerOptions transformer_options(const TrainerOptions& options) {
  TransformerOptions shape;
  std::error_code ignored;
  const bool has_shape =
      !options.initial_weights.empty() &&
      std::filesystem::exists(std::filesystem::path(options.initial_weights) / k_model_config,
                              ignored);
  if (has_shape) {
    const ModelOptions given = read_model_config(options.initial_weights);
    if (given.name != options.model) {
      throw UsageError(fmt::format("--model={}: the weights in --initial-weights={} are of a {}",
                                   options.model, options.initial_weights, given.name));
    }
    shape = given.transformer;
    if (options.preset != TrainerOptions().preset) {
      throw UsageError(
          fmt::format("--preset={}: {} in --initial-weights={} sets the shape; drop it",
                      options.preset, k_model_config, options.initial_weights));
    }
  } else {
    apply_preset(options.model, options.preset, shape);
  }
  const auto set = [](std::int64_t value, std::size_t& to) {
    to = value > 0 ? static_cast<std::size_t>(value) : to;
  };
  set(options.layers, shape.layers);
  set(options.heads, shape.heads);
  if (options.model == "gpt2" && !has_shape) {
    shape.max_length = 1024;
    shape.inner = options.hidden.empty() ? shape.inner : 4 * parse_hidden(options.hidden).front();
  }
  set(options.inner, shape.inner);
  set(options.max_length, shape.max_length);
  if (!options.hidden.empty()) {
    const std::vector<std::size_t> widths = parse_hidden(options.hidden);
    if (widths.size() > 1) {
      throw UsageError(fmt::format(
          "--hidden={}: --model={} has one width; --ff is the width between its dense layers",
          options.hidden, options.model));
    }
    shape.hidden = widths.front();
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw UsageError(fmt::format("--dropout={}: must be 0 or more and below 1", options.dropout));
  }
  if (!(options.norm_epsilon >= 0 && options.norm_epsilon < 1)) {
    throw UsageError(
        fmt::format("--norm-epsilon={}: must be 0 or more and below 1", options.norm_epsilon));
  }
  const MaskingOptions& masking = options.masking;
  for (const auto& [flag, share] :
       {std::pair("--mask-prob", masking.mask), std::pair("--random-replace-prob", masking.random),
        std::pair("--unmask-replace-prob", masking.keep)}) {
    if (!(share >= 0 && share <= 1)) {
      throw UsageError(fmt::format("{}={}: must be 0 to 1", flag, share));
    }
  }
  if (options.model == "gpt2" && !(masking == MaskingOptions{})) {
    throw UsageError(
        "--mask-prob and its options: --model=gpt2 predicts the next token and masks none");
  }
  if (masking.random + masking.keep > 1) {
    throw UsageError("--random-replace-prob and --unmask-replace-prob: add up to more than 1, and "
                     "both are shares of the same tokens");
  }
  constexpr double k_bert = 1e-12;
  constexpr double k_other = 1e-5;
  shape.dropout = options.dropout;
  shape.recompute = options.checkpoint_activations;
  shape.norm_epsilon = options.norm_epsilon > 0  ? options.norm_epsilon
                       : has_shape               ? shape.norm_epsilon
                       : options.model == "bert" ? k_bert
                                                 : k_other;
  return shape;
}

/// What only a model of text knows.
void refuse_text_options(const TrainerOptions& options) {
  const TrainerOptions none;
  const char* flag = options.preset != none.preset               ? "--preset"
                     : options.layers != none.layers             ? "--layers"
                     : options.heads != none.heads               ? "--heads"
                     : options.inner != none.inner               ? "--ff"
                     : options.max_length != none.max_length     ? "--max-length"
                     : options.dropout != none.dropout           ? "--dropout"
                     : !(options.masking == none.masking)        ? "--mask-prob and its options"
                     : options.norm_epsilon != none.norm_epsilon ? "--norm-epsilon"
                     : options.checkpoint_activations            ? "--checkpoint-activations"
                                                                 : nullptr;
  if (flag != nullptr) {
    throw UsageError(fmt::format("{}: only --model=bert, roberta and gpt2 have it, not --model={}",
                                 flag, options.model));
  }
}

} // namespace

ModelOptions model_options(const TrainerOptions& options) {
  ModelOptions model;
  model.name = options.model;
  model.classes = static_cast<std::size_t>(options.classes);
  model.seed = static_cast<std::uint64_t>(options.seed);
  if (model.is_of_text()) {
    model.transformer = transformer_options(options);
  } else {
    refuse_text_options(options);
    model.hidden = options.hidden.empty() ? model.hidden : parse_hidden(options.hidden);
  }
  return model;
}

RunOptions run_options(const TrainerOptions& options) {
  refuse_what_shared_replicas_lack(options);
  RunOptions run;
  run.model = model_options(options);
  run.optimizer.rule = parse_rule(options.optimizer);
  run.optimizer.learning_rate = options.learning_rate;
  run.optimizer.momentum = options.momentum;
  run.optimizer.weight_decay = options.weight_decay;
  run.optimizer.decays_vectors = options.decay_of == "all";
  run.optimizer.beta1 = options.beta1;
  run.optimizer.beta2 = options.beta2;
  run.optimizer.epsilon = options.epsilon;
  run.learning_rate = options.schedule;
  run.learning_rate.peak = options.learning_rate;
  run.learning_rate.schedule = parse_schedule(options.lr_schedule);
  run.learning_rate.is_linear = options.warmup_type == "linear" ? 1 : 0;
  const auto pack = static_cast<std::size_t>(std::max<std::int64_t>(options.bytes_per_pack, 0));
  run.step = {{options.bytes_per_pack == 0 ? SIZE_MAX : pack,
               parse_wire_type(options.communication_data_type).value()},
              static_cast<std::size_t>(options.batch_size),
              options.clip_norm,
              {}};
  run.precision = parse_precision(options.precision);
  run.matmul_precision = options.matmul_precision == "fp8"    ? MatmulPrecision::fp8
                         : options.matmul_precision == "high" ? MatmulPrecision::high
                                                              : MatmulPrecision::highest;
  if (run.matmul_precision == MatmulPrecision::fp8 && run.precision != Precision::bf16) {
    throw UsageError(
        "--matmul-precision=fp8 needs --precision=bf16, in which all other products are; add it");
  }
  if (run.precision == Precision::fp16) {
    run.step.loss_scale = options.loss_scale;
  }
  run.step.checks_overflow = !options.no_check_grad_overflow;
  run.accumulation_steps = options.accumulation_steps;
  run.zero_stage = static_cast<int>(options.zero_stage);
  run.offload = offload_of(options);
  run.epochs = options.epochs;
  run.steps = options.steps;
  run.drop_remainder = options.drop_remainder;
  run.seed = options.seed;
  run.split_by_speed = is_split_by_speed(options);
  run.log_every = options.log_every;
  run.checkpoint_dir = options.checkpoint_dir;
  run.checkpoint_every = options.checkpoint_every;
  run.keep = options.keep;
  run.save_on_signal = options.save_on_signal;
  run.resume = options.resume;
  run.initial_weights = options.initial_weights;
  run.export_folder = options.export_folder;
  run.timeline = options.timeline;
  return run;
}

bool is_elastic(const TrainerOptions& options, const Cluster& cluster) {
  return elastic_limits(options, cluster).has_value();
}

DataOptions data_options(const TrainerOptions& options) {
  const bool by_speed = is_split_by_speed(options); // Which shares one stream among all.
  if (by_speed && wants_own_samples(options)) {
    throw UsageError(fmt::format("--auto-shard={}: each worker trains on what it reads, but "
                                 "--batch-split=speed shares all samples; drop one of them",
                                 options.auto_shard));
  }
  return {.data = options.data,
          .shard = by_speed ? AutoShard::data : parse_shard(options.auto_shard),
          .classes = static_cast<std::size_t>(options.classes),
          .one_pass = options.epochs == 1 && !options.resume && !by_speed,
          .progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1,
          .is_causal = options.model == "gpt2",
          .masking = options.masking};
}

OutputOptions output_options(const TrainerOptions& options) {
  return {.progress_bar = !options.no_progress,
          .logdir = options.logdir,
          .csv = options.csv,
          .epochs = static_cast<double>(options.epochs)};
}

CommOptions comm_options(const TrainerOptions& options) {
  CommOptions comm;
  comm.communication = options.communication == "mpi"    ? CommOptions::Communication::mpi
                       : options.communication == "nccl" ? CommOptions::Communication::nccl
                       : options.communication == "ring" ? CommOptions::Communication::ring
                                                         : CommOptions::Communication::automatic;
  comm.transport = options.transport == "shm"   ? CommOptions::Transport::shared_memory
                   : options.transport == "tcp" ? CommOptions::Transport::tcp
                                                : CommOptions::Transport::automatic;
  comm.tcp_streams = static_cast<int>(options.tcp_streams);
  comm.rendezvous_timeout = options.rendezvous_timeout;
  comm.peer_timeout = options.peer_timeout;
  comm.collective_timeout = options.collective_timeout;
  comm.collective_log = options.collective_log;
  comm.notice = [](const std::string& text) { fmt::print(stderr, "dtrain-trainer: {}\n", text); };
  return comm;
}

ForecastOptions forecast_options(const TrainerOptions& options) {
  return {.workers = static_cast<int>(options.plan),
          .workers_per_host = static_cast<int>(options.plan_ranks_per_host),
          .bandwidth = options.plan_bandwidth * 1e9,
          .latency = options.plan_latency * 1e-6};
}

RankOptions rank_options(const TrainerOptions& options, const Cluster& cluster) {
  RankOptions ranks{.cluster = cluster,
                    .devices = parse_devices(options.devices),
                    .ops = parse_cross_device_ops(options.cross_device_ops),
                    .comm = comm_options(options)};
  if (ranks.devices.empty()) {
    ranks.devices = {options.device};
  } else if (options.device != "auto" &&
             (options.device == "cpu") != ranks.devices.front().starts_with("cpu")) {
    throw UsageError(fmt::format("--device={} and --devices={} ask for both; drop one of them",
                                 options.device, options.devices));
  }
  if (cluster.world_size == 1 && ranks.replicas() > 1) {
    ranks.cluster.source = "--devices";
  } else if (ranks.replicas() > 1 && options.cross_device_ops != "auto") {
    throw UsageError(fmt::format("--cross-device-ops={}: in a job of {} workers each sums its "
                                 "replicas' gradients by itself; drop it",
                                 options.cross_device_ops, cluster.world_size));
  }
  return ranks;
}

TrainJob train_job(const TrainerOptions& options, const Cluster& cluster) {
  if (options.min_workers > 0 && cluster.source == "none") {
    throw UsageError(fmt::format("--min-workers={}: this process is not a rank of a job; start it "
                                 "by dtrain submit --workers=N, or drop the flag",
                                 options.min_workers));
  }
  TrainJob job{.ranks = rank_options(options, cluster),
               .elastic = elastic_limits(options, cluster),
               .data = data_options(options),
               .run = run_options(options),
               .outputs = output_options(options)};
  choose_strategy(options.strategy, {.source = cluster.source,
                                     .workers = cluster.world_size,
                                     .is_elastic = job.elastic.has_value()});
  if (job.elastic) {
    refuse_what_elastic_workers_lack(options, job.ranks.replicas());
    job.run.global_batch = options.global_batch;
    job.data.shard = AutoShard::data;
    job.data.one_pass = false; // What was taken may have to be taken again.
  }
  return job;
}

PsJob ps_job(const TrainerOptions& options, const PsTask& task) {
  choose_strategy(options.strategy, {.source = "TF_CONFIG",
                                     .workers = static_cast<int>(task.workers.size()),
                                     .servers = static_cast<int>(task.servers.size())});
  refuse_what_servers_lack(task, options);
  PsJob job{.task = task,
            .run = run_options(options),
            .data = data_options(options),
            .outputs = output_options(options),
            .policy = {},
            .device = options.device,
            .shared_memory = options.transport != "tcp",
            .snapshot_dir = options.snapshot_dir,
            .peer_timeout = options.peer_timeout,
            .rendezvous_timeout = options.rendezvous_timeout,
            .is_benchmark = options.benchmark > 0};
  job.data.shard = AutoShard::data;
  job.data.one_pass = false;
  job.policy.sync = options.update == "sync" ? 1 : 0;
  job.policy.backup_workers = options.backup_workers;
  job.policy.max_staleness = options.max_staleness;
  job.policy.snapshot_every = options.snapshot_every;
  return job;
}

void refuse_server_options(const TrainerOptions& options) {
  const TrainerOptions none;
  const char* flag = options.update != none.update                   ? "--update"
                     : options.backup_workers != none.backup_workers ? "--backup-workers"
                     : options.max_staleness != none.max_staleness   ? "--max-staleness"
                     : !options.snapshot_dir.empty()                 ? "--snapshot-dir"
                     : options.snapshot_every != none.snapshot_every ? "--snapshot-every"
                                                                     : nullptr;
  if (flag != nullptr) {
    throw UsageError(fmt::format(
        "{}: is for jobs with parameter servers, and TF_CONFIG has no cluster.ps; drop it", flag));
  }
}

} // namespace trainer
