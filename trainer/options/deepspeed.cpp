#include "trainer/options/deepspeed.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/options/deepspeed_keys.h"

namespace trainer {
namespace {

using Json = nlohmann::json;
using RateSchedule = LearningRate::Schedule;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, TrainerOptions& options)
      : name_(dtrain::printable(path)), options_(options) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw UsageError(fmt::format("--config={}: cannot read it: {}", name_, std::strerror(errno)));
    }
    std::vector<std::set<std::string>> keys; // Of the objects that are open.
    const auto no_key_twice = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) {
        keys.emplace_back();
      } else if (event == Json::parse_event_t::object_end) {
        keys.pop_back();
      } else if (event == Json::parse_event_t::key &&
                 !keys.back().insert(value.get<std::string>()).second) {
        throw UsageError(fmt::format("{}: has the key \"{}\" twice", name_,
                                     dtrain::printable(value.get<std::string>())));
      }
      return true;
    };
    try {
      flatten("", Json::parse(file, no_key_twice));
    } catch (const Json::parse_error& error) {
      throw UsageError(fmt::format("{}: is not JSON: error at byte {}", name_, error.byte));
    }
  }

  std::vector<std::string> read() {
    read_step();
    read_elasticity();
    read_precision();
    read_optimizer();
    read_schedule();
    read_outputs();
    refuse_unknown();
    if (!without_effect_.empty()) {
      warnings_.push_back(
          fmt::format("{}: has no effect here: {}", name_, fmt::join(without_effect_, ", ")));
    }
    return warnings_;
  }

 private:
  void flatten(const std::string& path, const Json& value) {
    if (!value.is_object()) {
      if (path.empty()) {
        throw UsageError(fmt::format("{}: is not a JSON object", name_));
      }
      values_.emplace(path, value);
      return;
    }
    for (const auto& [key, inner] : value.items()) {
      flatten(path.empty() ? key : fmt::format("{}.{}", path, key), inner);
    }
  }

  [[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& wanted) {
    throw UsageError(fmt::format(
        "{}: {} is {}; it must be {}{}", name_, key, dtrain::printable(value.dump()), wanted,
        value == "auto" ? "; only Hugging Face's Trainer fills in \"auto\", so remove it" : ""));
  }

  /// The value of a key, which is known from now on; null: it is not given.
  const Json* take(const std::string& key) {
    known_.push_back(key);
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.is_null()) {
      return nullptr;
    }
    return &found->second;
  }

  bool take(const std::string& key, double& to, double least = 0) {
    const Json* value = take(key);
    if (value != nullptr) {
      if (!value->is_number() || !std::isfinite(value->get<double>()) ||
          value->get<double>() < least) {
        refuse(key, *value, fmt::format("a number of {:g} or more", least));
      }
      to = value->get<double>();
    }
    return value != nullptr;
  }

  bool take(const std::string& key, std::int64_t& to) {
    const Json* value = take(key);
    if (value != nullptr) {
      if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
          value->get<std::uint64_t>() > 1U << 30U) {
        refuse(key, *value, "a whole number of 1 or more");
      }
      to = value->get<std::int64_t>();
    }
    return value != nullptr;
  }

  bool take(const std::string& key, bool& to) {
    const Json* value = take(key);
    if (value != nullptr) {
      if (!value->is_boolean()) {
        refuse(key, *value, "true or false");
      }
      to = value->get<bool>();
    }
    return value != nullptr;
  }

  /// One of some names, whatever case its letters have.
  bool take(const std::string& key, std::string& to, const std::vector<std::string>& names) {
    const Json* value = take(key);
    if (value == nullptr) {
      return false;
    }
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return value->is_string() && lower(name) == lower(value->get<std::string>());
    });
    if (found == names.end()) {
      refuse(key, *value, fmt::format("one of {}", fmt::join(names, ", ")));
    }
    to = *found;
    return true;
  }

  void read_step() {
    for (const auto& [key, choice] :
         {std::pair("train_batch_size", &options_.global_batch),
          std::pair("train_micro_batch_size_per_gpu", &options_.batch_size),
          std::pair("gradient_accumulation_steps", &options_.accumulation_steps)}) {
      take(key, *choice);
    }
    options_.clip_norm = 1;
    take("gradient_clipping", options_.clip_norm);
    if (const Json* stage = take("zero_optimization.stage")) {
      if (!stage->is_number_unsigned() || *stage > 3) {
        refuse("zero_optimization.stage", *stage, "0, 1, 2 or 3");
      }
      options_.zero_stage = stage->get<std::int64_t>();
    }
    options_.offload_optimizer = offload_place("zero_optimization.offload_optimizer.");
    options_.offload_param = offload_place("zero_optimization.offload_param.");
    take("dataloader_drop_last", options_.drop_remainder);
    take("communication_data_type", options_.communication_data_type, {"fp32", "fp16", "bf16"});
  }

  std::string offload_place(const std::string& section) {
    std::string device = "none";
    take(section + "device", device, {"none", "cpu", "nvme"});
    const Json* path = take(section + "nvme_path");
    if (path != nullptr && (!path->is_string() || path->get_ref<const std::string&>().empty())) {
      refuse(section + "nvme_path", *path, "a folder");
    }
    if (device == "cpu" && path != nullptr) {
      without_effect_.push_back(section + "nvme_path");
    }
    if (device == "nvme" && path == nullptr) {
      throw UsageError(
          fmt::format("{}: {}device is \"nvme\"; add {}nvme_path, a folder on that disk", name_,
                      section, section));
    }
    return device == "nvme" ? path->get<std::string>() : device;
  }

  void read_elasticity() {
    ElasticityOptions elastic;
    bool is_enabled = false;
    double version = 0.2;
    bool ignores_others = false;
    take("elasticity.enabled", is_enabled);
    take("elasticity.version", version);
    take("elasticity.min_gpus", elastic.fewest_ranks);
    take("elasticity.max_gpus", elastic.most_ranks);
    take("elasticity.prefer_larger_batch", elastic.prefers_larger);
    take("elasticity.ignore_non_elastic_batch_info", ignores_others);
    const bool has_most = take("elasticity.max_train_batch_size", elastic.most_samples);
    const Json* const sizes = take("elasticity.micro_batch_sizes");
    if (!is_enabled) {
      return;
    }
    if (!has_most || sizes == nullptr) {
      throw UsageError(fmt::format("{}: elasticity needs max_train_batch_size and "
                                   "micro_batch_sizes",
                                   name_));
    }
    const auto is_size = [&](const Json& size) {
      return size.is_number_unsigned() && size >= 1 && size <= elastic.most_samples;
    };
    if (!sizes->is_array() || sizes->empty() ||
        !std::all_of(sizes->begin(), sizes->end(), is_size)) {
      refuse("elasticity.micro_batch_sizes", *sizes,
             fmt::format("a list of whole numbers from 1 to max_train_batch_size, {}",
                         elastic.most_samples));
    }
    elastic.passes = sizes->get<std::vector<std::int64_t>>();
    if (elastic.fewest_ranks > elastic.most_ranks) {
      throw UsageError(fmt::format("{}: elasticity.min_gpus is {}, more than max_gpus, {}", name_,
                                   elastic.fewest_ranks, elastic.most_ranks));
    }
    constexpr double k_newest = 0.2;
    if (version > k_newest) {
      refuse("elasticity.version", values_.at("elasticity.version"), "0.1 or 0.2");
    }
    if (!ignores_others &&
        options_.global_batch + options_.batch_size + options_.accumulation_steps > 0) {
      throw UsageError(
          fmt::format("{}: gives batch sizes, which elasticity chooses; remove train_batch_size, "
                      "train_micro_batch_size_per_gpu and gradient_accumulation_steps, or set "
                      "elasticity.ignore_non_elastic_batch_info",
                      name_));
    }
    options_.global_batch = options_.batch_size = options_.accumulation_steps = 0;
    options_.elastic = std::move(elastic);
  }

  void read_precision() {
    bool is_bf16 = false;
    bool is_fp16 = false;
    bool checks = true;
    for (const std::string section : {"bf16.", "bfloat16."}) { // The second is its old name.
      take(section + "enabled", is_bf16);
      if (take(section + "check_grad_overflow", checks) && !checks) {
        without_effect_.push_back(section + "check_grad_overflow");
      }
    }
    take("fp16.enabled", is_fp16);
    if (is_bf16 && is_fp16) {
      throw UsageError(fmt::format("{}: enables both bf16 and fp16; disable one of them", name_));
    }
    LossScaleOptions& scale = options_.loss_scale;
    take("fp16.loss_scale", scale.fixed);
    double power = static_cast<double>(scale.initial_power);
    constexpr double k_most_power = 120;
    if (take("fp16.initial_scale_power", power)) {
      if (power != std::floor(power) || power > k_most_power) {
        refuse("fp16.initial_scale_power", values_.at("fp16.initial_scale_power"),
               "a whole number from 0 to 120");
      }
      scale.initial_power = static_cast<std::int64_t>(power);
    }
    take("fp16.loss_scale_window", scale.window);
    take("fp16.hysteresis", scale.hysteresis);
    bool is_consecutive = false;
    take("fp16.consecutive_hysteresis", is_consecutive);
    scale.is_consecutive = is_consecutive ? 1 : 0;
    take("fp16.min_loss_scale", scale.least);
    options_.precision = is_fp16 ? "fp16" : is_bf16 ? "bf16" : "fp32";
  }

  void read_optimizer() {
    const std::string params = "optimizer.params.";
    std::string type;
    bool is_decoupled = true;
    bool is_torch = false;
    const Json* const named = take("optimizer.type");
    if (named != nullptr && named->is_string() && lower(named->get<std::string>()) == "muon") {
      throw UsageError(fmt::format(
          "{}: optimizer.type is \"Muon\", whose learning rates are not this program's; remove "
          "optimizer from the file, and give --optimizer=muon and --learning-rate as for AdamW",
          name_));
    }
    take("optimizer.type", type, {"Adam", "AdamW", "Lamb", "SGD"});
    refuse_params_of_others(type);
    take(params + "adam_w_mode", is_decoupled);
    take(params + "torch_adam", is_torch);
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
    take(params + "lr", options_.learning_rate);
    take(params + "momentum", options_.momentum);
    take(params + "weight_decay", options_.weight_decay);
    take(params + "eps", options_.epsilon);
    if (const Json* betas = take(params + "betas")) {
      const auto is_beta = [](const Json& beta) {
        return beta.is_number() && beta.get<double>() >= 0 && beta.get<double>() < 1;
      };
      if (!betas->is_array() || betas->size() != 2 || !is_beta((*betas)[0]) ||
          !is_beta((*betas)[1])) {
        refuse(params + "betas", *betas, "two numbers from 0 to less than 1");
      }
      options_.beta1 = (*betas)[0].get<double>();
      options_.beta2 = (*betas)[1].get<double>();
    }
  }

  /// Known ones of optimizer.params that the optimizer `type` does not take, as in DeepSpeed.
  void refuse_params_of_others(const std::string& type) const {
    const bool is_adam = type == "Adam" || type == "AdamW";
    for (const auto& [key, is_taken] :
         {std::pair("momentum", type == "SGD"), std::pair("betas", is_adam || type == "Lamb"),
          std::pair("eps", is_adam || type == "Lamb"),
          std::pair("bias_correction", is_adam || type == "Lamb"),
          std::pair("adam_w_mode", is_adam), std::pair("torch_adam", is_adam),
          std::pair("amsgrad", is_adam), std::pair("max_coeff", type == "Lamb"),
          std::pair("min_coeff", type == "Lamb")}) {
      const std::string path = fmt::format("optimizer.params.{}", key);
      if (!type.empty() && !is_taken && values_.contains(path)) {
        throw UsageError(fmt::format("{}: {}: {} does not have it; remove it", name_, path, type));
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
    if (!take("scheduler.type", name, names)) {
      return;
    }
    const auto type = std::find_if(schedule_types().begin(), schedule_types().end(),
                                   [&](const ScheduleType& one) { return one.name == name; });
    options_.lr_schedule = schedule_name(type->schedule);
    LearningRate& rate = options_.schedule;
    rate = type->defaults;
    const bool keeps_peak =
        type->schedule == RateSchedule::warmup || type->schedule == RateSchedule::warmup_cosine;
    rate.peak = keeps_peak ? options_.learning_rate : rate.peak;
    for (const auto& [key, member] : type->keys) {
      take(params + key, rate.*member);
    }
    options_.learning_rate = rate.peak;
    if (type->schedule == RateSchedule::one_cycle) {
      for (const char* key : {"cycle_min_lr", "cycle_max_lr"}) {
        if (!values_.contains(params + key)) {
          throw UsageError(fmt::format("{}: OneCycle needs {}{}", name_, params, key));
        }
      }
      rate.fall = values_.contains(params + "cycle_second_step_size") ? rate.fall : rate.rise;
      rate.fall_stairs = values_.contains(params + "cycle_second_stair_count") ? rate.fall_stairs
                                                                               : rate.rise_stairs;
      if (rate.rise <= 0) {
        throw UsageError(
            fmt::format("{}: {}cycle_first_step_size must be more than 0", name_, params));
      }
      if (!values_.contains(params + "cycle_momentum") && options_.optimizer != "sgd") {
        warnings_.push_back(fmt::format("{}: {}cycle_momentum, on by default in DeepSpeed, has no "
                                        "effect here: betas do not change",
                                        name_, params));
      }
    } else {
      take(params + "warmup_type", options_.warmup_type, {"log", "linear"});
    }
  }

  void read_outputs() {
    take("steps_per_print", options_.log_every);
    bool is_enabled = false;
    take("tensorboard.enabled", is_enabled);
    std::string folder;
    std::string job = "DeepSpeedJobName";
    for (const auto& [key, to] :
         {std::pair("tensorboard.output_path", &folder), std::pair("tensorboard.job_name", &job)}) {
      if (const Json* value = take(key)) {
        if (!value->is_string()) {
          refuse(key, *value, "text");
        }
        *to = value->get<std::string>();
      }
    }
    if (is_enabled) {
      options_.logdir = (std::filesystem::path(folder.empty() ? "runs" : folder) / job).string();
    }
  }

  /// Whether a key asks for what the trainer does anyway.
  bool is_off(const std::string& key, const Json& value) const {
    const std::string section = key.substr(0, key.rfind('.'));
    const auto enabled = values_.find(section + ".enabled");
    const auto device = values_.find(section + ".device");
    return value.is_null() || value == is_true_by_default(key) ||
           (enabled != values_.end() && enabled->first != key && enabled->second == false) ||
           (device != values_.end() && device->second == "none");
  }

  void refuse_unknown() {
    for (const auto& entry : values_) {
      const std::string& key = entry.first;
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
        continue;
      }
      const bool is_known = std::any_of(
          keys_without_effect().begin(), keys_without_effect().end(), [&](std::string_view known) {
            return key == known || (known.ends_with('.') && key.starts_with(known));
          });
      if (!is_known) {
        refuse_key(key);
      }
      if (!is_off(key, entry.second)) {
        without_effect_.push_back(key);
      }
    }
  }

  [[noreturn]] void refuse_key(const std::string& key) {
    std::vector<std::string> all = known_;
    for (const std::string_view known : keys_without_effect()) {
      all.emplace_back(known.substr(0, known.size() - (known.ends_with('.') ? 1 : 0)));
    }
    // The first part that is wrong: of zero_optimisation.stage the section.
    std::string wrong = key;
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      const std::string section = key.substr(0, dot + 1);
      if (std::none_of(all.begin(), all.end(),
                       [&](const std::string& one) { return one.starts_with(section); })) {
        wrong = key.substr(0, dot);
        break;
      }
    }
    const auto depth = std::count(wrong.begin(), wrong.end(), '.') + 1;
    std::vector<std::string> candidates;
    for (const std::string& one : all) { // As many parts as the wrong one has.
      std::size_t end = 0;
      for (auto part = 0; part < depth && end != std::string::npos; ++part) {
        end = one.find('.', end == 0 ? 0 : end + 1);
      }
      candidates.push_back(one.substr(0, end));
    }
    const auto near = dtrain::nearest(wrong, candidates);
    throw UsageError(fmt::format("{}: DeepSpeed has no key {}{}", name_, dtrain::printable(wrong),
                                 near ? fmt::format("; did you mean {}?", *near) : ""));
  }

  std::string name_;
  TrainerOptions& options_;
  std::map<std::string, Json> values_; ///< By "zero_optimization.stage".
  std::vector<std::string> known_;
  std::vector<std::string> without_effect_;
  std::vector<std::string> warnings_;
};

} // namespace

std::vector<std::string> read_deepspeed_config(const std::string& path, TrainerOptions& options) {
  return ConfigReader(path, options).read();
}

namespace {

constexpr std::int64_t k_rows = 64; ///< Of a pass, by default.

/// Of ranks that come and go, and keep the global batch.
std::string settle_elastic_batch(TrainerOptions& options) {
  if (options.accumulation_steps > 0) {
    throw UsageError(
        fmt::format("--accumulation-steps={}: elastic workers choose the number of passes to keep "
                    "a global batch of {}; drop it, --batch-size is the most samples of a pass",
                    options.accumulation_steps, options.global_batch));
  }
  options.batch_size = options.batch_size > 0 ? options.batch_size : k_rows;
  options.accumulation_steps = 1;
  return fmt::format("a step has {} samples for any number of workers, in passes of at most {}",
                     options.global_batch, options.batch_size);
}

/// What the file's elasticity says of so many ranks.
void apply_elasticity(TrainerOptions& options, int ranks, bool is_elastic) {
  const ElasticityOptions& elastic = *options.elastic;
  const ElasticBatch batch = elastic_batch(elastic);
  if (options.global_batch + options.batch_size + options.accumulation_steps > 0) {
    throw UsageError(fmt::format("--global-batch-size, --batch-size, --accumulation-steps: "
                                 "elasticity in --config={} chooses them; drop them",
                                 dtrain::printable(options.config)));
  }
  options.global_batch = batch.samples;
  options.batch_size = is_elastic ? *std::max_element(elastic.passes.begin(), elastic.passes.end())
                                  : elastic_pass(elastic, batch.samples, ranks);
  if (!is_elastic && (options.batch_size == 0 || std::find(batch.ranks.begin(), batch.ranks.end(),
                                                           ranks) == batch.ranks.end())) {
    throw UsageError(fmt::format("{}: {} ranks cannot share elasticity's {} samples in passes of "
                                 "{}; use {} ranks, or --min-workers for any number",
                                 dtrain::printable(options.config), ranks, batch.samples,
                                 fmt::join(elastic.passes, ", "), fmt::join(batch.ranks, ", ")));
  }
}

} // namespace

std::string settle_batch(TrainerOptions& options, int ranks, bool is_elastic) {
  if (options.elastic) {
    apply_elasticity(options, ranks, is_elastic);
  }
  if (is_elastic && options.global_batch > 0) {
    return settle_elastic_batch(options);
  }
  const std::int64_t global = options.global_batch;
  std::int64_t& rows = options.batch_size;
  std::int64_t& passes = options.accumulation_steps;
  const bool is_asked = global > 0 || !options.config.empty();
  const auto from = [&](std::int64_t value, const char* flag, const char* key) {
    if (value > 0 && options.elastic) {
      return fmt::format("elasticity={}", value);
    }
    const bool is_flag =
        options.config.empty() ||
        std::find(options.given.begin(), options.given.end(), flag) != options.given.end();
    return value == 0 ? std::string() : fmt::format("{}={}", is_flag ? flag : key, value);
  };
  const std::string given_global = from(global, "--global-batch-size", "train_batch_size");
  const std::string given_rows = from(rows, "--batch-size", "train_micro_batch_size_per_gpu");
  const std::string given_passes =
      from(passes, "--accumulation-steps", "gradient_accumulation_steps");
  const auto share = [&](std::int64_t parts, const std::string& of) {
    if (global % parts != 0) {
      throw UsageError(fmt::format("{}: is not a multiple of {}", given_global, of));
    }
    return global / parts;
  };
  const std::string of_ranks = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (global > 0 && rows > 0 && passes > 0) {
    if (global != rows * passes * ranks) {
      throw UsageError(fmt::format("{}: is not {} × {} × {} = {}; drop one of them", given_global,
                                   given_rows, given_passes, of_ranks, rows * passes * ranks));
    }
  } else if (global > 0 && rows > 0) {
    passes = share(rows * ranks, fmt::format("{} × {}", given_rows, of_ranks));
  } else if (global > 0) {
    passes = std::max<std::int64_t>(passes, 1);
    rows = share(passes * ranks,
                 given_passes.empty() ? of_ranks : fmt::format("{} × {}", given_passes, of_ranks));
  } else {
    rows = rows > 0 ? rows : k_rows;
    passes = std::max<std::int64_t>(passes, 1);
  }
  if (!is_asked) {
    return "";
  }
  const auto source = [](const std::string& given, const char* otherwise) {
    return given.empty() ? otherwise : given.substr(0, given.find('='));
  };
  const char* inferred = given_global.empty() ? "by default" : "inferred";
  return fmt::format("a step has {} samples ({}): {} per pass and rank ({}) × {} pass{} ({}) × {}",
                     rows * passes * ranks, source(given_global, "inferred"), rows,
                     source(given_rows, inferred), passes, passes == 1 ? "" : "es",
                     source(given_passes, inferred), of_ranks);
}

} // namespace trainer
