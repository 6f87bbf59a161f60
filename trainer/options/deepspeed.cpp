#include "trainer/options/deepspeed.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/options/config_file.h"
#include "trainer/options/deepspeed_keys.h"
#include "trainer/options/optimizer_params.h"

namespace trainer {
namespace {

using RateSchedule = LearningRate::Schedule;

class ConfigReader {
 public:
  ConfigReader(const std::string& path, TrainerOptions& options) : file_(path), options_(options) {}

  std::vector<std::string> read() {
    read_step();
    read_elasticity();
    read_precision();
    read_optimizer();
    read_schedule();
    read_outputs();
    if (const std::vector<std::string> keys = file_.check_all_known(); !keys.empty()) {
      warnings_.push_back(
          fmt::format("{}: has no effect here: {}", file_.name(), fmt::join(keys, ", ")));
    }
    return warnings_;
  }

 private:
  void read_step() {
    for (const auto& [key, choice] :
         {std::pair("train_batch_size", &options_.global_batch),
          std::pair("train_micro_batch_size_per_gpu", &options_.batch_size),
          std::pair("gradient_accumulation_steps", &options_.accumulation_steps)}) {
      file_.take(key, *choice);
    }
    options_.clip_norm = 1;
    file_.take("gradient_clipping", options_.clip_norm);
    if (const ConfigFile::Json* stage = file_.take("zero_optimization.stage")) {
      if (!stage->is_number_unsigned() || *stage > 3) {
        file_.refuse("zero_optimization.stage", "0, 1, 2 or 3");
      }
      options_.zero_stage = stage->get<std::int64_t>();
    }
    options_.offload_optimizer =
        offload_place("zero_optimization.offload_optimizer.", {"zero_optimization.cpu_offload"});
    options_.offload_param =
        offload_place("zero_optimization.offload_param.", {"zero_optimization.cpu_offload_param",
                                                           "zero_optimization.cpu_offload_params"});
    file_.take("dataloader_drop_last", options_.drop_remainder);
    file_.take("communication_data_type", options_.communication_data_type,
               {"fp32", "fp16", "bf16"});
  }

  /// `old_keys` are those that meant device "cpu" before there was a section.
  std::string offload_place(const std::string& section, const std::vector<std::string>& old_keys) {
    std::string device = "none";
    const bool is_given = file_.take(section + "device", device, {"none", "cpu", "nvme"});
    for (const std::string& key : old_keys) {
      bool is_on = false;
      file_.take(key, is_on);
      if (is_on && is_given) {
        file_.note_without_effect(key);
      } else if (is_on) {
        device = "cpu";
      }
    }
    const ConfigFile::Json* path = file_.take(section + "nvme_path");
    if (path != nullptr && (!path->is_string() || path->get_ref<const std::string&>().empty())) {
      file_.refuse(section + "nvme_path", "a folder");
    }
    if (path != nullptr && (device == "cpu" || !is_given)) {
      file_.note_without_effect(section + "nvme_path");
    }
    if (device == "nvme" && path == nullptr) {
      throw UsageError(
          fmt::format("{}: {}device is \"nvme\"; add {}nvme_path, a folder on that disk",
                      file_.name(), section, section));
    }
    return device == "nvme" ? path->get<std::string>() : device;
  }

  void read_elasticity() {
    ElasticityOptions elastic;
    bool is_enabled = false;
    bool ignores_others = false;
    file_.take("elasticity.enabled", is_enabled);
    read_elastic_version(elastic);
    file_.take("elasticity.min_gpus", elastic.fewest_ranks);
    file_.take("elasticity.max_gpus", elastic.most_ranks);
    file_.take("elasticity.prefer_larger_batch", elastic.prefers_larger);
    file_.take("elasticity.ignore_non_elastic_batch_info", ignores_others);
    file_.take("elasticity.max_train_batch_size", elastic.most_samples);
    const ConfigFile::Json* const sizes = file_.take("elasticity.micro_batch_sizes");
    if (!is_enabled) {
      file_.note_unless_enabled("elasticity.");
      return;
    }
    read_elastic_passes(sizes, elastic);
    if (elastic.fewest_ranks > elastic.most_ranks) {
      throw UsageError(fmt::format("{}: elasticity.min_gpus is {}, more than max_gpus, {}",
                                   file_.name(), elastic.fewest_ranks, elastic.most_ranks));
    }
    if (!ignores_others &&
        options_.global_batch + options_.batch_size + options_.accumulation_steps > 0) {
      throw UsageError(
          fmt::format("{}: gives batch sizes, which elasticity chooses; remove train_batch_size, "
                      "train_micro_batch_size_per_gpu and gradient_accumulation_steps, or set "
                      "elasticity.ignore_non_elastic_batch_info",
                      file_.name()));
    }
    options_.global_batch = options_.batch_size = options_.accumulation_steps = 0;
    options_.elastic = std::move(elastic);
  }

  void read_elastic_version(ElasticityOptions& elastic) {
    constexpr double k_first = 0.1;
    constexpr double k_newest = 0.2;
    double version = k_newest;
    file_.take("elasticity.version", version);
    if (version != k_first && version != k_newest) {
      file_.refuse("elasticity.version", "0.1 or 0.2");
    }
    elastic.fits_any_ranks = version == k_newest;
  }

  /// `sizes`: as in the file; null: the default's.
  void read_elastic_passes(const ConfigFile::Json* sizes, ElasticityOptions& elastic) const {
    const auto is_size = [&](const ConfigFile::Json& size) {
      return size.is_number_integer() && size >= 1 && size <= elastic.most_samples;
    };
    const ConfigFile::Json passes = sizes != nullptr ? *sizes : ConfigFile::Json(elastic.passes);
    if (!passes.is_array() || passes.empty() ||
        !std::all_of(passes.begin(), passes.end(), is_size)) {
      const std::string wanted = fmt::format(
          "a list of whole numbers from 1 to max_train_batch_size, {}", elastic.most_samples);
      if (sizes != nullptr) {
        file_.refuse("elasticity.micro_batch_sizes", wanted);
      }
      throw UsageError(fmt::format("{}: elasticity.micro_batch_sizes is {} by default; give {}",
                                   file_.name(), passes.dump(), wanted));
    }
    elastic.passes = passes.get<std::vector<std::int64_t>>();
  }

  void read_precision() {
    bool is_bf16 = false;
    bool is_fp16 = false;
    bool checks = true;
    std::string unchecked;                                     // By this key.
    for (const std::string section : {"bf16.", "bfloat16."}) { // The second is its old name.
      file_.take(section + "enabled", is_bf16);
      if (file_.take(section + "check_grad_overflow", checks) && !checks) {
        unchecked = section + "check_grad_overflow";
      }
    }
    options_.no_check_grad_overflow = !checks && is_bf16 && options_.clip_norm <= 0;
    if (!checks && !options_.no_check_grad_overflow) {
      file_.note_without_effect(unchecked);
    }
    file_.take("fp16.enabled", is_fp16);
    if (is_bf16 && is_fp16) {
      throw UsageError(
          fmt::format("{}: enables both bf16 and fp16; disable one of them", file_.name()));
    }
    const bool is_flag = options_.precision == "fp16"; // Which goes before the file.
    options_.precision = is_fp16 ? "fp16" : is_bf16 ? "bf16" : "fp32";
    read_loss_scale(is_fp16 || is_flag);
    if (!is_flag) {
      file_.note_unless_enabled("fp16.");
    }
  }

  void read_loss_scale(bool acts) {
    LossScaleOptions& scale = options_.loss_scale;
    file_.take("fp16.loss_scale", scale.fixed);
    double power = static_cast<double>(scale.initial_power);
    constexpr double k_most_power = 120;
    if (file_.take("fp16.initial_scale_power", power)) {
      if (power != std::floor(power) || power > k_most_power) {
        file_.refuse("fp16.initial_scale_power", "a whole number from 0 to 120");
      }
      scale.initial_power = static_cast<std::int64_t>(power);
    }
    file_.take("fp16.loss_scale_window", scale.window);
    file_.take("fp16.hysteresis", scale.hysteresis);
    bool is_consecutive = false;
    file_.take("fp16.consecutive_hysteresis", is_consecutive);
    scale.is_consecutive = is_consecutive ? 1 : 0;
    file_.take("fp16.min_loss_scale", scale.least);
    for (const std::string key :
         {"fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis",
          "fp16.consecutive_hysteresis", "fp16.min_loss_scale"}) {
      if (acts && !scale.is_dynamic() && file_.has(key)) {
        file_.note_without_effect(key);
      }
    }
  }

  void read_optimizer() {
    const std::string params = "optimizer.params.";
    std::string type;
    bool is_decoupled = true;
    bool is_torch = false;
    const ConfigFile::Json* const named = file_.take("optimizer.type");
    if (named != nullptr && named->is_string() && lower(named->get<std::string>()) == "muon") {
      throw UsageError(fmt::format(
          "{}: optimizer.type is \"Muon\", whose learning rates are not this program's; remove "
          "optimizer from the file, and give --optimizer=muon and --learning-rate as for AdamW",
          file_.name()));
    }
    file_.take("optimizer.type", type, {"Adam", "AdamW", "Lamb", "SGD"});
    refuse_params_of_others(type);
    if (file_.take(params + "max_grad_norm") != nullptr) {
      throw UsageError(fmt::format(
          "{}: {}max_grad_norm: no optimizer here has it; give gradient_clipping instead",
          file_.name(), params));
    }
    file_.take(params + "adam_w_mode", is_decoupled);
    file_.take(params + "torch_adam", is_torch);
    if (!type.empty()) {
      options_.optimizer = type == "Lamb"                    ? "lamb"
                           : type == "SGD"                   ? "sgd"
                           : type == "AdamW" || is_decoupled ? "adamw"
                                                             : "adam";
      options_.learning_rate = 1e-3;
      options_.momentum = 0;
      constexpr double k_torch_decay = 0.01;
      options_.weight_decay = is_torch && options_.optimizer == "adamw" ? k_torch_decay : 0;
    }
    file_.take(params + "lr", options_.learning_rate);
    file_.take(params + "momentum", options_.momentum);
    const bool has_decay = file_.take(params + "weight_decay", options_.weight_decay);
    if (is_torch && (has_decay || options_.optimizer != "adamw")) {
      file_.note_without_effect(params + "torch_adam"); // Which has only another default.
    }
    if (type == "Lamb" && !(file_.has(params + "max_coeff") && file_.has(params + "min_coeff"))) {
      warnings_.push_back(fmt::format("{}: {}max_coeff and min_coeff, 10 and 0.01 by default in "
                                      "DeepSpeed, have no effect here: Lamb's ratio |p| / |u| is "
                                      "not clamped",
                                      file_.name(), params));
    }
    if (type == "AdamW" && !is_decoupled) {
      file_.note_without_effect(params + "adam_w_mode");
    }
    file_.take(params + "eps", options_.epsilon);
    if (const ConfigFile::Json* betas = file_.take(params + "betas")) {
      const auto is_beta = [](const ConfigFile::Json& beta) {
        return beta.is_number() && beta.get<double>() >= 0 && beta.get<double>() < 1;
      };
      if (!betas->is_array() || betas->size() != 2 || !is_beta((*betas)[0]) ||
          !is_beta((*betas)[1])) {
        file_.refuse(params + "betas", "two numbers from 0 to less than 1");
      }
      options_.beta1 = (*betas)[0].get<double>();
      options_.beta2 = (*betas)[1].get<double>();
    }
    if (type.empty()) {
      note_params_of_others();
    }
  }

  /// Without a type the optimizer is the flag's, or the trainer's own.
  void note_params_of_others() {
    for (const OptimizerParam& param : optimizer_params()) {
      const std::string path = fmt::format("optimizer.params.{}", param.key);
      const bool chooses = param.key == "adam_w_mode" || param.key == "torch_adam";
      const bool sets = param.value != nullptr && !param.is_of(options_.optimizer);
      if ((chooses || sets) && file_.has(path)) {
        file_.note_without_effect(path);
      }
    }
  }

  /// Known ones of optimizer.params that the optimizer `type` does not take, as in DeepSpeed.
  void refuse_params_of_others(const std::string& type) const {
    for (const OptimizerParam& param : optimizer_params()) {
      const std::string path = fmt::format("optimizer.params.{}", param.key);
      if (!type.empty() && !param.is_of(lower(type)) && file_.has(path)) {
        throw UsageError(
            fmt::format("{}: {}: {} does not have it; remove it", file_.name(), path, type));
      }
    }
  }

  /// Those of scheduler.params that the scheduler does not have; null: none is named.
  void refuse_params_of_other_schedules(const ScheduleType* type,
                                        const std::vector<std::string>& names) {
    const std::string of_warmups = "warmup_type";
    std::set<std::string> keys = {of_warmups};
    for (const ScheduleType& one : schedule_types()) {
      for (const auto& entry : one.keys) {
        keys.insert(entry.first);
      }
    }
    for (const std::string& key : keys) {
      const std::string path = "scheduler.params." + key;
      const bool is_of_type =
          type != nullptr && (key == of_warmups ? type->schedule != RateSchedule::one_cycle
                                                : type->keys.contains(key));
      if (!is_of_type && file_.take(path) != nullptr) {
        throw UsageError(type == nullptr ? fmt::format("{}: {} needs scheduler.type, one of {}",
                                                       file_.name(), path, fmt::join(names, ", "))
                                         : fmt::format("{}: {}: {} does not have it; remove it",
                                                       file_.name(), path, type->name));
      }
    }
  }

  void read_schedule() {
    const std::string params = "scheduler.params.";
    std::vector<std::string> names;
    for (const ScheduleType& type : schedule_types()) {
      names.emplace_back(type.name);
    }
    std::string name;
    options_.lr_schedule = "constant"; // As DeepSpeed without one.
    if (!file_.take("scheduler.type", name, names)) {
      refuse_params_of_other_schedules(nullptr, names);
      return;
    }
    const auto type = std::find_if(schedule_types().begin(), schedule_types().end(),
                                   [&](const ScheduleType& one) { return one.name == name; });
    refuse_params_of_other_schedules(&*type, names);
    options_.lr_schedule = schedule_name(type->schedule);
    LearningRate& rate = options_.schedule;
    rate = type->defaults;
    const bool keeps_peak =
        type->schedule == RateSchedule::warmup || type->schedule == RateSchedule::warmup_cosine;
    rate.peak = keeps_peak ? options_.learning_rate : rate.peak;
    for (const auto& [key, member] : type->keys) {
      file_.take(params + key, rate.*member);
    }
    options_.learning_rate = rate.peak;
    if (type->schedule == RateSchedule::one_cycle) {
      for (const char* key : {"cycle_min_lr", "cycle_max_lr"}) {
        if (!file_.has(params + key)) {
          throw UsageError(fmt::format("{}: OneCycle needs {}{}", file_.name(), params, key));
        }
      }
      rate.fall = file_.has(params + "cycle_second_step_size") ? rate.fall : rate.rise;
      rate.fall_stairs =
          file_.has(params + "cycle_second_stair_count") ? rate.fall_stairs : rate.rise_stairs;
      for (const auto& [key, other] : {std::pair("decay_lr_rate", rate.decay_every),
                                       std::pair("decay_step_size", rate.decay_rate)}) {
        if (file_.has(params + key) && rate.*type->keys.at(key) > 0 && other <= 0) {
          file_.note_without_effect(params + key);
        }
      }
      if (rate.rise <= 0) {
        throw UsageError(
            fmt::format("{}: {}cycle_first_step_size must be more than 0", file_.name(), params));
      }
      if (!file_.has(params + "cycle_momentum") && options_.optimizer != "sgd") {
        warnings_.push_back(fmt::format("{}: {}cycle_momentum, on by default in DeepSpeed, has no "
                                        "effect here: betas do not change",
                                        file_.name(), params));
      }
    } else {
      file_.take(params + "warmup_type", options_.warmup_type, {"log", "linear"});
    }
  }

  void read_outputs() {
    file_.take("steps_per_print", options_.log_every);
    bool is_enabled = false;
    file_.take("tensorboard.enabled", is_enabled);
    std::string folder;
    std::string job = "DeepSpeedJobName";
    for (const auto& [key, to] :
         {std::pair("tensorboard.output_path", &folder), std::pair("tensorboard.job_name", &job)}) {
      if (const ConfigFile::Json* value = file_.take(key)) {
        if (!value->is_string()) {
          file_.refuse(key, "text");
        }
        *to = value->get<std::string>();
      }
    }
    file_.note_unless_enabled("tensorboard.");
    if (is_enabled) {
      options_.logdir = (std::filesystem::path(folder.empty() ? "runs" : folder) / job).string();
    }
  }

  ConfigFile file_;
  TrainerOptions& options_;
  std::vector<std::string> warnings_;
};

} // namespace

std::vector<std::string> read_deepspeed_config(const std::string& path, TrainerOptions& options) {
  return ConfigReader(path, options).read();
}

} // namespace trainer
