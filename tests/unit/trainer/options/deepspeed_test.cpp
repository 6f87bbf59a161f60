#include "trainer/options/deepspeed.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/options/batch.h"
#include "trainer/options/deepspeed_keys.h"

using namespace trainer;

namespace {

struct Read {
  TrainerOptions options;
  std::vector<std::string> warnings;
};

Read read(const std::string& text) {
  const TempFolder folder;
  Read found;
  found.warnings = read_deepspeed_config(folder.write("ds.json", text), found.options);
  return found;
}

std::string refused(const std::string& text) {
  return message_of<UsageError>([&] { read(text); });
}

/// All that a configuration can set.
std::string text_of(const TrainerOptions& o) {
  const LearningRate& rate = o.schedule;
  const LossScaleOptions& scale = o.loss_scale;
  const ElasticityOptions elastic = o.elastic.value_or(ElasticityOptions{});
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", o.global_batch,
                     o.batch_size, o.accumulation_steps, o.optimizer, o.learning_rate, o.momentum,
                     o.beta1, o.beta2, o.epsilon, o.weight_decay, o.clip_norm, o.zero_stage,
                     o.offload_optimizer, o.offload_param, o.drop_remainder,
                     o.communication_data_type, o.no_check_grad_overflow) +
         fmt::format("; {} {} {} {} {} {} {}", o.precision, scale.fixed, scale.initial_power,
                     scale.window, scale.hysteresis, scale.is_consecutive, scale.least) +
         fmt::format("; {} {} {} {} {} {} {} {} {} {}", o.lr_schedule, o.warmup_type, rate.first,
                     rate.rise, rate.fall, rate.last, rate.rise_stairs, rate.fall_stairs,
                     rate.decay_every, rate.decay_rate) +
         fmt::format("; {} {} {} {} {} {} {} {}", o.elastic.has_value(), elastic.most_samples,
                     elastic.passes, elastic.fewest_ranks, elastic.most_ranks,
                     elastic.prefers_larger, elastic.fits_any_ranks, o.log_every) +
         o.logdir;
}

/// What a configuration does: it sets these options, or is refused with this message.
struct Outcome {
  std::string set;
  std::string refused;
  std::string warnings;
};

Outcome outcome_of(const nlohmann::json& config) {
  Outcome found;
  found.refused = message_of<UsageError>([&] {
    const Read all = read(config.dump());
    found.set = text_of(all.options);
    found.warnings = fmt::format("{}", fmt::join(all.warnings, "\n"));
  });
  return found;
}

nlohmann::json with(nlohmann::json config, std::string key, const nlohmann::json& value) {
  std::replace(key.begin(), key.end(), '.', '/');
  config[nlohmann::json::json_pointer("/" + key)] = value;
  return config;
}

} // namespace

TEST_CASE("HelloDeepSpeed's configuration is read, and what has no effect is named once") {
  const Read found = read(R"({
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
    "bf16": {"enabled": false, "check_grad_overflow": true},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8,
                          "offload_optimizer": {"device": "none", "pin_memory": true}}
  })");
  CHECK(found.options.batch_size == 8);
  CHECK(found.options.optimizer == "adamw"); // DeepSpeed's Adam is, unless adam_w_mode is false.
  CHECK(found.options.learning_rate == 1e-4);
  CHECK(found.options.lr_schedule == "constant");
  CHECK(found.options.clip_norm == 1);
  CHECK(found.options.zero_stage == 1);
  REQUIRE(found.warnings.size() == 1);
  CHECK(found.warnings[0].ends_with(
      "/ds.json: has no effect here: zero_optimization.reduce_bucket_size"));
}

TEST_CASE("what is offloaded to a disk goes to its folder, and to the host where a CPU has it") {
  const auto zero = [](const std::string& keys) {
    return R"({"zero_optimization": {"stage": 3, )" + keys + "}}";
  };
  const Read disk = read(zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/fast"},
                                 "offload_param": {"device": "cpu", "pin_memory": false})"));
  CHECK(disk.options.offload_optimizer == "/fast");
  CHECK(disk.options.offload_param == "cpu");
  REQUIRE(disk.warnings.size() == 1);
  CHECK(
      disk.warnings[0].ends_with("has no effect here: zero_optimization.offload_param.pin_memory"));
  CHECK(contains(refused(zero(R"("offload_param": {"device": "nvme"})")),
                 "add zero_optimization.offload_param.nvme_path"));
  CHECK(contains(refused(zero(R"("offload_param": {"device": "disk"})")),
                 "it must be one of none, cpu, nvme"));
}

TEST_CASE("the optimizer's keys mean what they mean to DeepSpeed") {
  const auto optimizer = [](const std::string& keys) {
    return read(R"({"optimizer": {)" + keys + "}}").options;
  };
  CHECK(optimizer(R"("type": "Adam", "params": {"adam_w_mode": false})").optimizer == "adam");
  CHECK(optimizer(R"("type": "AdamW", "params": {"adam_w_mode": false})").optimizer == "adamw");
  CHECK(optimizer(R"("type": "adamw", "params": {"torch_adam": true})").weight_decay == 0.01);
  CHECK(optimizer(R"("type": "Lamb", "params": {"weight_decay": 0.2})").weight_decay == 0.2);
  const TrainerOptions all =
      optimizer(R"("type": "AdamW", "params": {"betas": [0.8, 0.95], "eps": 1e-6})");
  CHECK(all.beta1 == 0.8);
  CHECK(all.beta2 == 0.95);
  CHECK(all.epsilon == 1e-6);
  CHECK(all.learning_rate == 1e-3);
  CHECK(contains(refused(R"({"optimizer": {"params": {"betas": [0.9, 1]}}})"),
                 "optimizer.params.betas is [0.9,1]; it must be two numbers from 0"));
  CHECK(contains(refused(R"({"optimizer": {"type": "Muon"}})"),
                 "give --optimizer=muon and --learning-rate as for AdamW"));
}

TEST_CASE("schedules are read with DeepSpeed's defaults") {
  const auto schedule = [](const std::string& type, const std::string& params) {
    return read(
               R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": {"type": ")" +
               type + R"(", "params": {)" + params + "}}}")
        .options;
  };
  CHECK(schedule("WarmupLR", "").learning_rate == 0.5);
  CHECK(schedule("WarmupLR", "").schedule.rise == 1000);
  CHECK(schedule("WarmupLR", R"("warmup_max_lr": 0.25)").learning_rate == 0.25);
  CHECK(schedule("WarmupLR", R"("warmup_type": "linear")").warmup_type == "linear");
  const TrainerOptions decay = schedule("WarmupDecayLR", R"("total_num_steps": 50)");
  CHECK(decay.lr_schedule == "warmup-decay");
  CHECK(decay.learning_rate == 0.001);
  CHECK(decay.schedule.fall == 50);
  const TrainerOptions cosine = schedule("WarmupCosineLR", R"("total_num_steps": 50)");
  CHECK(cosine.learning_rate == 0.5);
  CHECK(cosine.schedule.last == 1e-4);
  const TrainerOptions cycle = schedule(
      "OneCycle", R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "cycle_first_stair_count": 3)");
  CHECK(cycle.learning_rate == 0.2);
  CHECK(cycle.schedule.fall == 2000);
  CHECK(cycle.schedule.fall_stairs == 3);
  CHECK(contains(refused(R"({"scheduler": {"type": "OneCycle"}})"),
                 "OneCycle needs scheduler.params.cycle_min_lr"));
  CHECK(contains(refused(R"({"scheduler": {"type": "LRRangeTest"}})"),
                 "must be one of WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle"));
  CHECK(contains(refused(R"({"scheduler": {"type": "WarmupLR", "params": {"cycle_min_lr": 1}}})"),
                 "scheduler.params.cycle_min_lr: WarmupLR does not have it"));
}

TEST_CASE("every key of DeepSpeed's that is changed sets something, or is named, or refused") {
  using Json = nlohmann::json;
  const Json none = Json::object();
  const Json adam = {{"optimizer", {{"type", "Adam"}}}};
  const Json adamw = {{"optimizer", {{"type", "AdamW"}}}};
  const Json l2_adam = with(adam, "optimizer.params.adam_w_mode", false);
  const Json with_decay = with(adam, "optimizer.params.weight_decay", 0.5);
  const Json sgd = {{"optimizer", {{"type", "SGD"}}}};
  const Json lamb = {{"optimizer", {{"type", "Lamb"}}}};
  const Json fp16 = {{"fp16", {{"enabled", true}}}};
  const Json fixed = with(fp16, "fp16.loss_scale", 128);
  const Json bf16 = {{"bf16", {{"enabled", true}}}};
  const Json unclipped_bf16 = with(bf16, "gradient_clipping", 0);
  const Json warmup = {{"scheduler", {{"type", "WarmupLR"}}}};
  const Json decay = {{"scheduler", {{"type", "WarmupDecayLR"}}}};
  const Json cosine = {{"scheduler", {{"type", "WarmupCosineLR"}}}};
  const Json cycle = {
      {"scheduler",
       {{"type", "OneCycle"}, {"params", {{"cycle_min_lr", 0.1}, {"cycle_max_lr", 0.2}}}}}};
  const Json decaying = with(with(cycle, "scheduler.params.decay_step_size", 3),
                             "scheduler.params.decay_lr_rate", 0.3);
  const Json elastic = {
      {"elasticity",
       {{"enabled", true}, {"max_train_batch_size", 48}, {"micro_batch_sizes", {4, 6}}}}};
  const Json batch_too = with(elastic, "train_batch_size", 64);
  const Json host = {{"zero_optimization",
                      {{"stage", 3},
                       {"offload_optimizer", {{"device", "cpu"}}},
                       {"offload_param", {{"device", "cpu"}}}}}};
  const Json disk = {{"zero_optimization",
                      {{"stage", 3},
                       {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "/fast"}}},
                       {"offload_param", {{"device", "nvme"}, {"nvme_path", "/fast"}}}}}};
  const Json board = {{"tensorboard", {{"enabled", true}}}};
  struct Key {
    std::string name;
    Json value;
    const Json* beside;
  };
  const std::vector<Key> setting = {
      {"train_batch_size", 8, &none},
      {"train_micro_batch_size_per_gpu", 8, &none},
      {"gradient_accumulation_steps", 8, &none},
      {"optimizer.type", "AdamW", &lamb},
      {"optimizer.type", "SGD", &adam},
      {"optimizer.params.lr", 0.5, &adam},
      {"optimizer.params.betas", {0.5, 0.5}, &adam},
      {"optimizer.params.betas", {0.5, 0.5}, &lamb},
      {"optimizer.params.eps", 0.5, &adam},
      {"optimizer.params.weight_decay", 0.5, &adam},
      {"optimizer.params.torch_adam", true, &adam},
      {"optimizer.params.adam_w_mode", false, &adam},
      {"optimizer.params.momentum", 0.5, &sgd},
      {"scheduler.type", "WarmupCosineLR", &warmup},
      {"scheduler.params.warmup_min_lr", 0.5, &warmup},
      {"scheduler.params.warmup_max_lr", 0.5, &warmup},
      {"scheduler.params.warmup_num_steps", 5, &warmup},
      {"scheduler.params.warmup_type", "linear", &warmup},
      {"scheduler.params.warmup_min_lr", 0.5, &decay},
      {"scheduler.params.warmup_max_lr", 0.5, &decay},
      {"scheduler.params.warmup_num_steps", 5, &decay},
      {"scheduler.params.warmup_type", "linear", &decay},
      {"scheduler.params.total_num_steps", 5, &decay},
      {"scheduler.params.warmup_min_ratio", 0.5, &cosine},
      {"scheduler.params.cos_min_ratio", 0.5, &cosine},
      {"scheduler.params.warmup_num_steps", 5, &cosine},
      {"scheduler.params.warmup_type", "linear", &cosine},
      {"scheduler.params.total_num_steps", 5, &cosine},
      {"scheduler.params.cycle_min_lr", 0.15, &cycle},
      {"scheduler.params.cycle_max_lr", 0.5, &cycle},
      {"scheduler.params.cycle_first_step_size", 5, &cycle},
      {"scheduler.params.cycle_second_step_size", 5, &cycle},
      {"scheduler.params.cycle_first_stair_count", 5, &cycle},
      {"scheduler.params.cycle_second_stair_count", 5, &cycle},
      {"scheduler.params.decay_step_size", 5, &decaying},
      {"scheduler.params.decay_lr_rate", 0.5, &decaying},
      {"fp16.enabled", true, &none},
      {"fp16.loss_scale", 8, &fp16},
      {"fp16.initial_scale_power", 8, &fp16},
      {"fp16.loss_scale_window", 8, &fp16},
      {"fp16.hysteresis", 8, &fp16},
      {"fp16.consecutive_hysteresis", true, &fp16},
      {"fp16.min_loss_scale", 8, &fp16},
      {"bf16.enabled", true, &none},
      {"bfloat16.enabled", true, &none},
      {"bf16.check_grad_overflow", false, &unclipped_bf16},
      {"gradient_clipping", 0.5, &none},
      {"communication_data_type", "bf16", &none},
      {"dataloader_drop_last", true, &none},
      {"zero_optimization.stage", 2, &none},
      {"zero_optimization.offload_optimizer.device", "cpu", &none},
      {"zero_optimization.offload_optimizer.nvme_path", "/other", &disk},
      {"zero_optimization.offload_param.device", "cpu", &none},
      {"zero_optimization.cpu_offload", true, &none},
      {"zero_optimization.cpu_offload_param", true, &none},
      {"zero_optimization.cpu_offload_params", true, &none},
      {"zero_optimization.offload_param.nvme_path", "/other", &disk},
      {"steps_per_print", 5, &none},
      {"tensorboard.enabled", true, &none},
      {"tensorboard.output_path", "x", &board},
      {"tensorboard.job_name", "x", &board},
      {"elasticity.enabled", false, &elastic},
      {"elasticity.max_train_batch_size", 96, &elastic},
      {"elasticity.micro_batch_sizes", {2, 3}, &elastic},
      {"elasticity.min_gpus", 2, &elastic},
      {"elasticity.max_gpus", 4, &elastic},
      {"elasticity.prefer_larger_batch", false, &elastic},
      {"elasticity.version", 0.1, &elastic},
      {"elasticity.ignore_non_elastic_batch_info", true, &batch_too}};
  for (const Key& key : setting) {
    CAPTURE(key.name);
    const Outcome found = outcome_of(with(*key.beside, key.name, key.value));
    CHECK(found.refused.empty());
    CHECK(found.set != outcome_of(*key.beside).set);
  }
  const std::vector<Key> named = {
      {"gradient_predivide_factor", 2.0, &none},
      {"prescale_gradients", true, &none},
      {"memory_breakdown", true, &none},
      {"wall_clock_breakdown", true, &none},
      {"dump_state", true, &none},
      {"fp16.auto_cast", true, &fp16},
      {"fp16.loss_scale", 8, &none},
      {"fp16.initial_scale_power", 8, &fixed},
      {"fp16.loss_scale_window", 8, &fixed},
      {"fp16.hysteresis", 8, &fixed},
      {"fp16.consecutive_hysteresis", true, &fixed},
      {"fp16.min_loss_scale", 8, &fixed},
      {"tensorboard.output_path", "x", &none},
      {"elasticity.max_train_batch_size", 96, &none},
      {"bf16.check_grad_overflow", false, &none},
      {"bfloat16.check_grad_overflow", false, &none},
      {"bf16.check_grad_overflow", false, &bf16}, // Clipping looks at all gradients.
      {"optimizer.params.bias_correction", false, &adam},
      {"optimizer.params.amsgrad", true, &adam},
      {"optimizer.params.adam_w_mode", false, &adamw},    // As AdamW's name says that it is on.
      {"optimizer.params.torch_adam", true, &l2_adam},    // Whose decay is 0 in PyTorch too.
      {"optimizer.params.torch_adam", true, &with_decay}, // It only has another default.
      {"optimizer.params.max_coeff", 5, &lamb},
      {"optimizer.params.min_coeff", 5, &lamb},
      {"scheduler.params.cycle_momentum", true, &cycle},
      {"scheduler.params.decay_step_size", 5, &cycle}, // Without the rate, and this without it.
      {"scheduler.params.decay_lr_rate", 0.5, &cycle},
      {"scheduler.params.last_batch_iteration", 5, &warmup},
      {"zero_optimization.contiguous_gradients", false, &none},
      {"zero_optimization.reduce_scatter", false, &none},
      {"zero_optimization.reduce_bucket_size", 5, &none},
      {"zero_optimization.allgather_partitions", false, &none},
      {"zero_optimization.allgather_bucket_size", 5, &none},
      {"zero_optimization.overlap_comm", false, &none},
      {"zero_optimization.round_robin_gradients", true, &none},
      {"zero_optimization.sub_group_size", 5, &none},
      {"zero_optimization.stage3_prefetch_bucket_size", 5, &none},
      {"zero_optimization.stage3_param_persistence_threshold", 5, &none},
      {"zero_optimization.stage3_max_live_parameters", 5, &none},
      {"zero_optimization.stage3_max_reuse_distance", 5, &none},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save", true, &none},
      {"zero_optimization.cpu_offload", true, &disk},
      {"zero_optimization.cpu_offload_param", true, &disk},
      {"zero_optimization.offload_optimizer.nvme_path", "/fast", &none},
      {"zero_optimization.offload_optimizer.pin_memory", false, &host},
      {"zero_optimization.offload_optimizer.ratio", 0.5, &host},
      {"zero_optimization.offload_optimizer.buffer_count", 5, &host},
      {"zero_optimization.offload_optimizer.nvme_path", "/fast", &host},
      {"zero_optimization.offload_param.pin_memory", false, &host},
      {"zero_optimization.offload_param.buffer_size", 5, &host},
      {"zero_optimization.offload_param.nvme_path", "/fast", &host},
      {"csv_monitor.enabled", true, &none},
      {"comms_logger.enabled", true, &none},
      {"flops_profiler.enabled", true, &none},
      {"timers.throughput.enabled", false, &none},
      {"activation_checkpointing.partition_activations", true, &none},
      {"activation_checkpointing.cpu_checkpointing", true, &none},
      {"checkpoint.tag_validation", "Fail", &none},
      {"checkpoint.load_universal", true, &none},
      {"checkpoint.use_node_local_storage", true, &none},
      {"elasticity.min_time", 5, &elastic},
      {"elasticity.num_gpus_per_node", 5, &elastic},
      {"elasticity.model_parallel_size", 5, &elastic}};
  for (const Key& key : named) {
    CAPTURE(key.name);
    const Outcome found = outcome_of(with(*key.beside, key.name, key.value));
    CHECK(found.refused.empty());
    CHECK(contains(found.warnings, key.name));
  }
  for (const std::string_view known : keys_without_effect()) { // And what the reference leaves out.
    const std::string key = std::string(known) + (known.ends_with('.') ? "some" : "");
    const bool is_of_cycle = key.starts_with("scheduler.params.cycle") || key.ends_with("mom_rate");
    CAPTURE(key);
    CHECK(contains(outcome_of(with(is_of_cycle ? cycle : none, key, 7)).warnings, key));
    const auto& trues = keys_true_by_default();
    const bool is_true = std::find(trues.begin(), trues.end(), key) != trues.end();
    CHECK(contains(outcome_of(with(cycle, key, !is_true)).warnings, key));
    CHECK_FALSE(contains(outcome_of(with(cycle, key, is_true)).warnings, key));
  }
  for (const char* key : // True in DeepSpeed's own sources, where they are left out.
       {"aio.overlap_events",
        "autotuning.fast",
        "autotuning.overwrite",
        "bf16.immediate_grad_update",
        "checkpoint.checkpoint_serialization",
        "checkpoint.writer.io_buffer_double",
        "comms_logger.prof_all",
        "compile.double_buffer",
        "compile.keep_int_input_tensors",
        "compile.offload_activation_pin_memory",
        "flops_profiler.detailed",
        "hybrid_engine.pin_parameters",
        "managed_gradient_accumulation",
        "nebula.enable_nebula_load",
        "pipeline.grad_partitioned",
        "pipeline.pipe_partitioned",
        "timers.throughput.synchronized",
        "zero_optimization.cpu_offload_use_pin_memory",
        "zero_optimization.offload_optimizer.pin_memory",
        "zero_optimization.offload_param.pin_memory"}) {
    CAPTURE(key);
    CHECK(contains(outcome_of(with(none, key, false)).warnings, key));
    CHECK_FALSE(contains(outcome_of(with(none, key, true)).warnings, key));
  }
  const std::vector<Key> refused = {
      {"optimizer.type", "OneBitAdam", &none},       {"optimizer.type", "Muon", &none},
      {"scheduler.type", "LRRangeTest", &none},      {"optimizer.params.momentum", 0.5, &adam},
      {"optimizer.params.betas", {0.5, 0.5}, &sgd},  {"optimizer.params.eps", 0.5, &sgd},
      {"optimizer.params.adam_w_mode", true, &lamb}, {"optimizer.params.torch_adam", true, &sgd},
      {"optimizer.params.max_coeff", 5, &adam},      {"scheduler.params.cycle_min_lr", 1, &warmup},
      {"elasticity.version", 0.3, &elastic}};
  for (const Key& key : refused) {
    CAPTURE(key.name);
    CHECK(contains(outcome_of(with(*key.beside, key.name, key.value)).refused, key.name));
  }
}

TEST_CASE("OneCycle says that momentum does not cycle, unless the file wants none of it") {
  const auto warnings = [](const std::string& more) {
    return read(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, )"
                R"("cycle_max_lr": 0.2)" +
                more + "}}}")
        .warnings;
  };
  REQUIRE(warnings("").size() == 1);
  CHECK(contains(warnings("").front(), "scheduler.params.cycle_momentum"));
  CHECK(warnings(R"(, "cycle_momentum": false)").empty());
}

TEST_CASE("Lamb says that its ratio is not clamped, as DeepSpeed's is by default") {
  const auto warnings = [](const std::string& params) {
    return read(R"({"optimizer": {"type": "Lamb", "params": {)" + params + "}}}").warnings;
  };
  REQUIRE(warnings("").size() == 1);
  CHECK(contains(warnings("").front(), "optimizer.params.max_coeff and min_coeff, 10 and 0.01"));
  CHECK(warnings(R"("max_coeff": 5)").size() == 2);
  CHECK(warnings(R"("max_coeff": 5, "min_coeff": 0.1)").size() == 1);
}

TEST_CASE("elasticity chooses the batch that DeepSpeed's chooses") {
  // Of its own tests.
  const ElasticityOptions of_10k{
      .most_samples = 10'000, .passes = {8, 12, 16, 17}, .fewest_ranks = 32, .most_ranks = 1500};
  const ElasticBatch batch = elastic_batch(of_10k);
  CHECK(batch.samples == 9792);
  CHECK(batch.ranks.size() == 23);
  CHECK(batch.ranks.front() == 32);
  CHECK(elastic_pass(of_10k, 9792, 64) == 17);
  CHECK(elastic_pass(of_10k, 9792, 128) == 0);
  ElasticityOptions few{.most_samples = 32, .passes = {1, 2, 3, 7}, .most_ranks = 1500};
  CHECK(elastic_batch(few).samples == 42); // The common multiple, which is more than the most.
  CHECK(elastic_pass(few, 42, 7) == 3);
  few.prefers_larger = false;
  CHECK(elastic_batch(few).samples == 24);
}

TEST_CASE("elasticity's keys give a batch to ranks that can share it, or that come and go") {
  const auto config = [](const std::string& more) {
    return R"({"elasticity": {"enabled": true, "max_train_batch_size": 48, "min_time": 20,
                              "micro_batch_sizes": [4, 6]})" +
           more + "}";
  };
  const Read found = read(config(""));
  REQUIRE(found.options.elastic);
  CHECK(found.warnings.size() == 1); // min_time.
  TrainerOptions rigid = found.options;
  settle_batch(rigid, 4);
  CHECK(rigid.global_batch == 48);
  CHECK(rigid.batch_size == 6);
  CHECK(rigid.accumulation_steps == 2);
  TrainerOptions elastic = found.options;
  CHECK(settle_batch(elastic, 5, true) ==
        "a step has 48 samples for any number of workers, in passes of at most 6");
  TrainerOptions five = found.options; // Who have 40 = 2 × 4 × 5 by version 0.2, the newest.
  CHECK(settle_batch(five, 5) == "a step has 40 samples (elasticity): 4 per pass and rank "
                                 "(elasticity) × 2 passes (inferred) × 5 ranks");
  five = found.options;
  five.elastic->prefers_larger = false;
  settle_batch(five, 5);
  CHECK(five.global_batch == 30);
  five = found.options;
  CHECK(contains(message_of<UsageError>([&] { settle_batch(five, 13); }), "13 ranks cannot share"));
  five = found.options;
  five.elastic->fits_any_ranks = false; // Version 0.1.
  const std::string why = message_of<UsageError>([&] { settle_batch(five, 5); });
  CHECK(contains(why, "5 ranks cannot share elasticity's 48 samples in passes of 4, 6; use 1, 2, "
                      "3, 4, 6, 8, 12 ranks, or --min-workers"));
  CHECK(contains(refused(config(R"(, "train_batch_size": 64)")), "ignore_non_elastic_batch_info"));
  const Read sizes = read(R"({"elasticity": {"enabled": true}})");
  REQUIRE(sizes.options.elastic);
  CHECK(sizes.options.elastic->most_samples == 2000);
  CHECK(sizes.options.elastic->passes == std::vector<std::int64_t>{2, 4, 6});
  CHECK(contains(refused(R"({"elasticity": {"enabled": true, "max_train_batch_size": 5}})"),
                 "elasticity.micro_batch_sizes is [2,4,6] by default; give a list of whole "
                 "numbers from 1 to max_train_batch_size, 5"));
  CHECK(contains(refused(R"({"elasticity": {"enabled": true, "max_train_batch_size": 8,
                                            "micro_batch_sizes": [4, 16]}})"),
                 "elasticity.micro_batch_sizes is [4,16]"));
  CHECK_FALSE(
      read(R"({"elasticity": {"enabled": false, "max_train_batch_size": 8}})").options.elastic);
}
