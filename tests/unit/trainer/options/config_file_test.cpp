// What of DeepSpeed's configuration file is refused, or named as without effect, and how.
#include "trainer/options/config_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/options/deepspeed.h"

using namespace trainer;

namespace {

/// The warnings; `options` gets the rest.
std::string warned(const std::string& text, TrainerOptions options = {}) {
  const TempFolder folder;
  return fmt::format(
      "{}", fmt::join(read_deepspeed_config(folder.write("ds.json", text), options), "\n"));
}

std::string refused(const std::string& text) {
  return message_of<UsageError>([&] { warned(text); });
}

TrainerOptions read(const std::string& text) {
  const TempFolder folder;
  TrainerOptions options;
  read_deepspeed_config(folder.write("ds.json", text), options);
  return options;
}

} // namespace

TEST_CASE("a key that DeepSpeed does not know is an error that says which was meant") {
  CHECK(contains(refused(R"({"train_batchsize": 8})"),
                 "no key train_batchsize; did you mean train_batch_size?"));
  CHECK(contains(refused(R"({"zero_optimisation": {"stage": 1}})"),
                 "no key zero_optimisation; did you mean zero_optimization?"));
  CHECK(contains(refused(R"({"zero_optimization": {"stag": 1}})"),
                 "no key zero_optimization.stag; did you mean zero_optimization.stage?"));
  CHECK(contains(refused(R"({"qqq": 1})"), "DeepSpeed has no key qqq"));
}

TEST_CASE("an empty section is an error where DeepSpeed does not know it, or wants a value") {
  CHECK(contains(refused(R"({"zero_optimisation": {}})"),
                 "no key zero_optimisation; did you mean zero_optimization?"));
  CHECK(contains(refused(R"({"train_batch_size": {}})"),
                 "train_batch_size is {}; it must be a whole number of 1 or more"));
  CHECK(warned(R"({"zero_optimization": {}, "optimizer": {"params": {}}, "aio": {}})").empty());
}

TEST_CASE("sections in one key are an error that says how to write them") {
  CHECK(refused(R"({"zero_optimization.stage": 2})")
            .ends_with(R"(/ds.json: "zero_optimization.stage" is one key; )"
                       R"(did you mean {"zero_optimization":{"stage":2}}?)"));
  CHECK(contains(refused(R"({"optimizer": {"params.lr": 1}})"),
                 R"(optimizer: "params.lr" is one key; did you mean {"params":{"lr":1}}?)"));
  CHECK(contains(warned(R"({"autotuning": {"arg_mappings": {"a.b": 1}}})"),
                 "has no effect here: autotuning.arg_mappings.a.b"));
}

TEST_CASE("keys of a section that nothing enables are named as without effect") {
  CHECK(contains(warned(R"({"fp16": {"loss_scale": 128, "hysteresis": 3, "auto_cast": true}})"),
                 "has no effect here: fp16.auto_cast, fp16.hysteresis, fp16.loss_scale"));
  CHECK(contains(warned(R"({"tensorboard": {"output_path": "tb", "job_name": "a"}})"),
                 "has no effect here: tensorboard.job_name, tensorboard.output_path"));
  CHECK(contains(warned(R"({"elasticity": {"max_train_batch_size": 100, "enabled": null}})"),
                 "has no effect here: elasticity.max_train_batch_size"));
  CHECK(contains(warned(R"({"zero_optimization": {"offload_optimizer": {"nvme_path": "/fast"}}})"),
                 "has no effect here: zero_optimization.offload_optimizer.nvme_path"));
  CHECK(warned(R"({"fp16": {"enabled": false, "loss_scale": 128}})").empty()); // Says so itself.
  TrainerOptions by_flag;
  by_flag.precision = "fp16";
  CHECK(warned(R"({"fp16": {"loss_scale": 128}})", by_flag).empty());
  CHECK(contains(warned(R"({"fp16": {"loss_scale": 128, "hysteresis": 3}})", by_flag),
                 "has no effect here: fp16.hysteresis"));
}

TEST_CASE("what changes a dynamic loss scale is named as without effect beside a fixed one") {
  const std::string others = R"("initial_scale_power": 8, "hysteresis": 3, "min_loss_scale": 2,
                                "loss_scale_window": 9, "consecutive_hysteresis": true)";
  CHECK(contains(warned(R"({"fp16": {"enabled": true, "loss_scale": 128, )" + others + "}}"),
                 "has no effect here: fp16.consecutive_hysteresis, fp16.hysteresis, "
                 "fp16.initial_scale_power, fp16.loss_scale_window, fp16.min_loss_scale"));
  CHECK(warned(R"({"fp16": {"enabled": true, "loss_scale": 0, )" + others + "}}").empty());
}

TEST_CASE("parameters of no named optimizer are named unless the trainer's own, or the flag's, has "
          "them") {
  const std::string momentum = R"({"optimizer": {"params": {"lr": 1, "momentum": 0.5}}})";
  CHECK(contains(warned(momentum), "has no effect here: optimizer.params.momentum"));
  CHECK(contains(warned(R"({"optimizer": {"params": {"adam_w_mode": true}}})"),
                 "has no effect here: optimizer.params.adam_w_mode"));
  TrainerOptions sgd;
  sgd.optimizer = "sgd";
  CHECK(warned(momentum, sgd).empty());
  CHECK(contains(warned(R"({"optimizer": {"params": {"betas": [0.8, 0.9]}}})", sgd),
                 "has no effect here: optimizer.params.betas"));
}

TEST_CASE("a value where DeepSpeed has a section must be an object") {
  CHECK(
      contains(refused(R"({"optimizer": "Adam"})"), "optimizer is \"Adam\"; it must be an object"));
  CHECK(contains(refused(R"({"optimizer": {"params": 3}})"),
                 "optimizer.params is 3; it must be an object"));
  CHECK(contains(refused(R"({"zero_optimization": true})"),
                 "zero_optimization is true; it must be an object"));
  CHECK(contains(refused(R"({"activation_checkpointing": true})"),
                 "activation_checkpointing is true; it must be an object"));
}

TEST_CASE(
    "a parameter without its scheduler, or of another, is refused for what is wrong with it") {
  const auto params = [](const std::string& type, const std::string& all) {
    return refused(R"({"scheduler": {)" + type + R"("params": {)" + all + "}}}");
  };
  CHECK(contains(params("", R"("warmup_num_steps": 5)"),
                 "scheduler.params.warmup_num_steps needs scheduler.type, one of WarmupLR, "
                 "WarmupDecayLR, WarmupCosineLR, OneCycle"));
  CHECK(contains(params("", R"("warmup_type": "log")"), "warmup_type needs scheduler.type"));
  CHECK(contains(params(R"("type": "OneCycle", )",
                        R"("cycle_min_lr": 1, "cycle_max_lr": 2, "warmup_type": "log")"),
                 "scheduler.params.warmup_type: OneCycle does not have it; remove it"));
  CHECK(contains(params(R"("type": "WarmupLR", )", R"("total_num_steps": 5)"),
                 "scheduler.params.total_num_steps: WarmupLR does not have it; remove it"));
  CHECK(contains(params(R"("type": "OneCycle", )", R"("cycle_min_lr": 1, "cycle_max_lr": null)"),
                 "OneCycle needs scheduler.params.cycle_max_lr"));
  CHECK(params(R"("type": "WarmupLR", )", R"("cycle_max_lr": null)").empty()); // As left out.
}

TEST_CASE("max_grad_norm of an optimizer is refused for gradient_clipping") {
  CHECK(contains(
      refused(R"({"optimizer": {"type": "Adam", "params": {"lr": 3e-5, "max_grad_norm": 1}}})"),
      "optimizer.params.max_grad_norm: no optimizer here has it; give gradient_clipping instead"));
}

TEST_CASE("all values that Hugging Face's Trainer would fill in are refused in one line") {
  CHECK(refused(R"({"fp16": {"enabled": "auto", "loss_scale": 0},
                    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
                    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
                    "gradient_clipping": "auto", "train_batch_size": "auto"})")
            .ends_with("/ds.json: \"auto\" is filled in only by Hugging Face's Trainer; give a "
                       "value for, or remove: fp16.enabled, gradient_clipping, "
                       "optimizer.params.betas, optimizer.params.lr, train_batch_size"));
}

TEST_CASE("ZeRO-Offload's old keys put on the host what the new ones do, unless these are there") {
  const auto zero = [](const std::string& keys) {
    return R"({"zero_optimization": {"stage": 3, )" + keys + "}}";
  };
  CHECK(read(zero(R"("cpu_offload": true)")).offload_optimizer == "cpu");
  CHECK(read(zero(R"("cpu_offload": true)")).offload_param == "none");
  CHECK(read(zero(R"("cpu_offload": false)")).offload_optimizer == "none");
  CHECK(read(zero(R"("cpu_offload_param": true)")).offload_param == "cpu");
  CHECK(read(zero(R"("cpu_offload_params": true)")).offload_param == "cpu");
  CHECK(warned(zero(R"("cpu_offload": true)")).empty());
  const std::string both = zero(R"("cpu_offload": true, "offload_optimizer": {"device": "none"})");
  CHECK(read(both).offload_optimizer == "none");
  CHECK(contains(warned(both), "has no effect here: zero_optimization.cpu_offload"));
}

TEST_CASE("what is no configuration is refused, with the place") {
  CHECK(contains(refused("{\"a\": "), "is not JSON: error at line 1, column 7"));
  CHECK(contains(refused("{\n  \"a\": 1\n  \"b\": 2\n}"), "error at line 3, column 5"));
  CHECK(contains(refused("{\"a\": \"größer\" 1}"), "error at line 1, column 16"));
  CHECK(contains(refused(""), "error at line 1, column 1"));
  CHECK(contains(refused("[]"), "is not a JSON object"));
  CHECK(contains(refused(R"({"train_batch_size": 8, "train_batch_size": 9})"),
                 "has the key \"train_batch_size\" twice"));
  CHECK(contains(refused(R"({"": {"train_batch_size": 8}})"), "has an empty key"));
  const std::string lists = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(contains(refused(R"({"train_batch_size": )" + lists + "}"), "is nested more than 64 deep"));
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) {
    objects += R"({"a":)";
  }
  CHECK(contains(refused(objects), "is nested more than 64 deep"));
  CHECK(contains(refused(R"({"gradient_clipping": -1})"), "gradient_clipping is -1"));
  CHECK(contains(refused(R"({"zero_optimization": {"stage": 4}})"), "must be 0, 1, 2 or 3"));
  TrainerOptions options;
  CHECK(contains(message_of<UsageError>([&] { read_deepspeed_config("/none", options); }),
                 "--config=/none: cannot read it"));
  CHECK(message_of<UsageError>([&] { read_deepspeed_config("/", options); }) ==
        "--config=/: cannot read it: Is a directory");
}
