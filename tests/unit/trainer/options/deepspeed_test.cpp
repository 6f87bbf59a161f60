#include "trainer/options/deepspeed.h"

#include <doctest/doctest.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

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

TrainerOptions batch(std::int64_t global, std::int64_t rows, std::int64_t passes) {
  TrainerOptions options;
  options.global_batch = global;
  options.batch_size = rows;
  options.accumulation_steps = passes;
  return options;
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
                                 "offload_param": {"device": "cpu", "pin_memory": true})"));
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
                 "optimizer.type is \"Muon\"; it must be one of Adam, AdamW, Lamb, SGD"));
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
                 "no key scheduler.params.cycle_min_lr"));
}

TEST_CASE("a key that DeepSpeed does not know is an error that says which was meant") {
  CHECK(contains(refused(R"({"train_batchsize": 8})"),
                 "no key train_batchsize; did you mean train_batch_size?"));
  CHECK(contains(refused(R"({"zero_optimisation": {"stage": 1}})"),
                 "no key zero_optimisation; did you mean zero_optimization?"));
  CHECK(contains(refused(R"({"zero_optimization": {"stag": 1}})"),
                 "no key zero_optimization.stag; did you mean zero_optimization.stage?"));
  CHECK(contains(refused(R"({"qqq": 1})"), "DeepSpeed has no key qqq"));
}

TEST_CASE("what is no configuration is refused, with the place") {
  CHECK(contains(refused("{\"a\": "), "is not JSON: error at byte"));
  CHECK(contains(refused("[]"), "is not a JSON object"));
  CHECK(contains(refused(R"({"train_batch_size": 8, "train_batch_size": 9})"),
                 "has the key \"train_batch_size\" twice"));
  CHECK(contains(refused(R"({"train_batch_size": "auto"})"),
                 "train_batch_size is \"auto\"; it must be a whole number of 1 or more; only "
                 "Hugging Face's Trainer fills in \"auto\""));
  CHECK(contains(refused(R"({"gradient_clipping": -1})"), "gradient_clipping is -1"));
  CHECK(contains(refused(R"({"zero_optimization": {"stage": 4}})"), "must be 0, 1, 2 or 3"));
  TrainerOptions options;
  CHECK(contains(message_of<UsageError>([&] { read_deepspeed_config("/none", options); }),
                 "--config=/none: cannot read it"));
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
  TrainerOptions five = found.options;
  const std::string why = message_of<UsageError>([&] { settle_batch(five, 5); });
  CHECK(contains(why, "5 ranks cannot share elasticity's 48 samples in passes of 4, 6; use 1, 2, "
                      "3, 4, 6, 8, 12 ranks, or --min-workers"));
  CHECK(contains(refused(config(R"(, "train_batch_size": 64)")), "ignore_non_elastic_batch_info"));
  CHECK(contains(refused(R"({"elasticity": {"enabled": true}})"), "needs max_train_batch_size"));
  CHECK(contains(refused(R"({"elasticity": {"enabled": true, "max_train_batch_size": 8,
                                            "micro_batch_sizes": [4, 16]}})"),
                 "elasticity.micro_batch_sizes is [4,16]"));
  CHECK_FALSE(
      read(R"({"elasticity": {"enabled": false, "max_train_batch_size": 8}})").options.elastic);
}

TEST_CASE("elastic workers keep a global batch that was given") {
  TrainerOptions options = batch(100, 0, 0);
  settle_batch(options, 3, true);
  CHECK(options.batch_size == 64);
  CHECK(options.accumulation_steps == 1);
  options = batch(100, 8, 2);
  CHECK(contains(message_of<UsageError>([&] { settle_batch(options, 3, true); }),
                 "--accumulation-steps=2"));
}

TEST_CASE("of the three sizes of a batch two give the third") {
  struct Case {
    TrainerOptions given;
    std::int64_t rows;
    std::int64_t passes;
  };
  for (Case& one : std::vector<Case>{{batch(64, 8, 0), 8, 2},
                                     {batch(64, 0, 4), 4, 4},
                                     {batch(0, 8, 3), 8, 3},
                                     {batch(64, 0, 0), 16, 1},
                                     {batch(0, 8, 0), 8, 1},
                                     {batch(0, 0, 0), 64, 1},
                                     {batch(0, 0, 2), 64, 2},
                                     {batch(64, 8, 2), 8, 2}}) {
    settle_batch(one.given, 4);
    CHECK(one.given.batch_size == one.rows);
    CHECK(one.given.accumulation_steps == one.passes);
  }
}

TEST_CASE("it is said where each number of a batch comes from") {
  TrainerOptions options = batch(64, 8, 0);
  options.config = "ds.json";
  options.given = {"--batch-size"};
  CHECK(settle_batch(options, 4) == "a step has 64 samples (train_batch_size): 8 per pass and rank "
                                    "(--batch-size) × 2 passes (inferred) × 4 ranks");
  options = batch(0, 0, 0);
  CHECK(settle_batch(options, 4).empty());
  options = batch(6, 0, 0);
  CHECK(settle_batch(options, 1) == "a step has 6 samples (--global-batch-size): 6 per pass and "
                                    "rank (inferred) × 1 pass (inferred) × 1 rank");
}

TEST_CASE("sizes of a batch that contradict each other are an error") {
  const auto refused = [](TrainerOptions options) {
    return message_of<UsageError>([&] { settle_batch(options, 4); });
  };
  CHECK(refused(batch(64, 8, 4)) == "--global-batch-size=64: is not --batch-size=8 × "
                                    "--accumulation-steps=4 × 4 ranks = 128; drop one of them");
  CHECK(refused(batch(63, 8, 0)) ==
        "--global-batch-size=63: is not a multiple of --batch-size=8 × 4 ranks");
  CHECK(refused(batch(6, 0, 0)) == "--global-batch-size=6: is not a multiple of 4 ranks");
}
