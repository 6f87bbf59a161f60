#include "trainer/forecast/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainer/data/feed.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/errors.h"
#include "trainer/forecast/rehearsal.h"
#include "trainer/monitor/console.h"
#include "trainer/run/replica.h"

namespace trainer {
namespace {

/// A GPU that allocates nothing, and counts what it would.
class CountingGpu final : public Device {
 public:
  explicit CountingGpu(Device& gpu) : gpu_(gpu) {}

  std::size_t bytes() const { return bytes_; } ///< Allocated, and not freed.

  std::string describe() const override { return gpu_.describe(); }
  Buffer allocate(std::size_t count, DType dtype) override {
    const std::size_t bytes = count * size_of(dtype);
    bytes_ += bytes;
    void* const nowhere = this; // Which nobody reads, and Buffer calls no Free for null.
    return {nowhere, count, dtype, {}, [this, bytes](void* /*memory*/) { bytes_ -= bytes; }};
  }
  Buffer allocate_pinned(std::size_t /*count*/, DType dtype) override {
    return {nullptr, 0, dtype, {}, {}};
  }
  Stream& stream() override { return gpu_.stream(); }
  std::unique_ptr<Stream> make_stream() override { return gpu_.make_stream(); }
  const Kernels& kernels() const override { return gpu_.kernels(); }
  DType activation_type() const override { return gpu_.activation_type(); }

 private:
  Device& gpu_;
  std::size_t bytes_ = 0;
};

/// What the process takes now, of memory of its own.
std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * CpuDevice().page_bytes();
}

/// Of a batch in a GPU's memory.
std::size_t batch_bytes(const Batch& like) {
  std::size_t bytes = 0;
  for (const Batch::Field& field : like.fields) {
    bytes += like.rows * field.width * size_of(field.type);
  }
  return bytes;
}

/// Values of the largest matrix that a fully connected layer multiplies.
std::size_t largest_operand(const MemoryPlanOptions& options, const TensorTable& tensors) {
  const std::size_t rows =
      options.like.rows * (options.model.is_of_text() ? options.model.transformer.max_length : 1);
  std::size_t most = 0;
  for (const Tensor& tensor : tensors.tensors()) {
    if (tensor.shape.size() == 2 && !tensor.is_embedding) {
      most = std::max({most, tensor.count(), rows * tensor.shape[0], rows * tensor.shape[1]});
    }
  }
  return most;
}

/// Of the weights in 16 bits, all of them: a copy in float32 and, at stage 3, what is gathered for
/// it; or, of a GPU below stage 3, in bf16.
std::size_t rounded_bytes(const MemoryPlanOptions& options, const Model& model,
                          const Device& device, int stage) {
  if (options.precision == Precision::fp32) {
    return 0;
  }
  if (stage == 3 || device.is_host()) {
    const bool gathers = stage == 3 && (options.ranks > 1 || !device.is_host());
    return model.tensors().arena_size() * (sizeof(float) + (gathers ? sizeof(Bf16Value) : 0));
  }
  return device.activation_type() == DType::bf16 && model.takes_rounded()
             ? factors_size(model) * size_of(DType::bf16)
             : 0;
}

/// Has a GPU multiply in what a run does.
void multiply_as(const RunOptions& run, Device& device) {
  if (!device.is_host() && run.precision != Precision::fp32) {
    device.multiply_in(half_type(run.precision));
  }
  set_matmul_precision(device, run.matmul_precision);
}

/// Of a tensor that lies in panels, on its way to a checkpoint: row-major.
std::size_t turning_bytes(const TensorTable& tensors) {
  std::size_t most = 0;
  for (const Tensor& tensor : tensors.tensors()) {
    if (tensor.layout != Layout::row_major) {
      most = std::max(most, tensor.count() * sizeof(float));
    }
  }
  return most;
}

/// Of a run on so many ranks.
MemoryPlanOptions plan_options(int ranks, const RunOptions& run, const Dataset& samples) {
  MemoryPlanOptions options{.model = fitted(run.model, samples),
                            .optimizer = run.optimizer,
                            .precision = run.precision,
                            .buckets = run.step.buckets,
                            .offload = run.offload,
                            .ranks = ranks,
                            .like = {.rows = run.step.rows_at_once},
                            .accumulates = run.accumulation_steps > 1,
                            .saves = !run.checkpoint_dir.empty(),
                            .goes_on = run.checkpoint_every > 0};
  for (const FieldType& field : samples.train.source->fields()) {
    options.like[field.name] = {nullptr, field.width, field.type};
  }
  return options;
}

} // namespace

std::size_t MemoryPlan::most() const { return std::max({step(), start, save}); }

MemoryPlan plan_memory(const MemoryPlanOptions& options, int stage, Device& device) {
  MemoryPlan plan{.stage = stage_taken(stage, options.ranks, options.offload, device.is_host())};
  std::optional<CountingGpu> on_gpu;
  if (!device.is_host()) {
    on_gpu.emplace(device);
  }
  std::unique_ptr<Model> model;
  {
    const BufferCount count;
    model = make_model(options.model, on_gpu ? *on_gpu : device);
    model->make_room(options.like);
    plan.activations =
        on_gpu ? on_gpu->bytes() + batch_bytes(options.like) +
                     device.cuda()->memory_for_products(largest_operand(options, model->tensors()))
               : count.bytes();
  }
  const TensorTable& tensors = model->tensors();
  const std::size_t floats = tensors.arena_size();
  const std::size_t whole = floats * sizeof(float);
  const Shards shards(floats, options.buckets, 0, options.ranks);
  const std::size_t own = plan.stage == 0 ? floats : shards.own_floats();
  std::size_t moments = 0;
  std::vector<const Tensor*> whole_tensors;
  {
    const Buffer parameters = Buffer::paged(floats, DType::f32);
    const BufferCount count;
    CpuDevice cpu;
    const Optimizer optimizer(options.optimizer, parameters.span(), {}, cpu, &tensors,
                              plan.stage == 0 ? std::vector<ArenaRange>{} : shards.own());
    whole_tensors = optimizer.whole_tensors();
    const Offload& offload = options.offload;
    const bool has_files = !offload.optimizer.empty();
    const std::size_t kinds = optimizer.moments().size();
    moments = kinds * own * sizeof(float);
    plan.moments = count.bytes() - Optimizer::k_state_bytes;
    if (has_files || (on_gpu && offload.optimizer_is_on_host)) {
      plan.moments -= moments;
    }
    const Pieces pieces = Pieces::of(own);
    if (!on_gpu && has_files) {
      plan.moments += StateFiles::memory_bytes(kinds, pieces);
    }
    if (on_gpu) {
      const bool has_parameters = plan.stage == 3 && offload.parameters_are_on_host;
      const bool rounds = has_parameters && options.precision != Precision::fp32;
      const std::size_t rows =
          (!has_files && offload.optimizer_is_on_host ? kinds : 0) + (has_parameters ? 1 : 0);
      plan.moments += HostStates::memory_bytes(rows, own, rounds);
    }
    if (!on_gpu && plan.stage == 3 && !offload.parameters.empty()) {
      plan.moments += pieces.largest() * sizeof(float);
    }
  }
  const std::size_t rounded = rounded_bytes(options, *model, device, plan.stage);
  RehearsedStep step = {.most = {whole, whole, rounded}, .at_rest = {whole, whole, rounded}};
  if (plan.stage >= 2 && device.page_bytes() > 0) {
    step = rehearse_step(
        {.stage = plan.stage,
         .offload = options.offload,
         .rows = options.like.rows,
         .accumulates = options.accumulates,
         .is_rounded = options.precision != Precision::fp32 && (plan.stage == 3 || !on_gpu),
         .whole_tensors = std::move(whole_tensors)},
        *model, shards, device);
  }
  plan.parameters = step.most.parameters;
  plan.gradients = step.most.gradients;
  plan.rounded = on_gpu && plan.stage < 3 ? rounded : step.most.rounded;
  if (on_gpu) { // What it saves is copied to the host, where ranks that share weights draw them.
    plan.start = plan.stage < 3 ? whole + rounded + (plan.stage < 2 ? whole : 0) + plan.moments : 0;
    return plan;
  }
  plan.start = whole + rounded + (plan.stage < 2 ? whole : 0) + plan.moments;
  if (options.saves) {
    // What a rank saves is copied, and its copy kept for the next time; but where some is in files.
    const bool is_in_files = options.offload.is_to_files();
    const std::size_t copied = is_in_files ? 0 : own * sizeof(float) + moments;
    const std::size_t saving = step.at_rest.all() + plan.moments + plan.activations;
    plan.save = copied + (options.goes_on ? std::max(saving, plan.step()) : saving) +
                (plan.stage == 0 || options.ranks == 1 ? turning_bytes(tensors) : 0);
  }
  return plan;
}

std::string memory_plan_text(const std::vector<MemoryPlan>& plans, std::size_t program,
                             const char* title) {
  const auto mb = [](std::size_t bytes) {
    constexpr double k_million = 1e6;
    return fmt::format("{:.1f}", static_cast<double>(bytes) / k_million);
  };
  const bool is_mixed = plans.front().rounded > 0;
  std::string text = fmt::format(
      "{:<6}{:>12}{:>11}{:>11}{}{:>13}{:>9}{:>11}\n", "STAGE", "PARAMETERS", "GRADIENTS",
      "OPTIMIZER", is_mixed ? fmt::format("{:>10}", "16 BITS") : "", "ACTIVATIONS", title, "MOST");
  bool starts_higher = false;
  bool saves_higher = false;
  for (const MemoryPlan& plan : plans) {
    const bool saves = plan.most() == plan.save && plan.save > plan.step();
    const bool starts = !saves && plan.start > plan.step();
    starts_higher = starts_higher || starts;
    saves_higher = saves_higher || saves;
    text += fmt::format("{:<6}{:>12}{:>11}{:>11}{}{:>13}{:>9}{:>11}{}\n", plan.stage,
                        mb(plan.parameters), mb(plan.gradients), mb(plan.moments),
                        is_mixed ? fmt::format("{:>10}", mb(plan.rounded)) : "",
                        mb(plan.activations), mb(program), mb(plan.most() + program),
                        saves    ? " (1)"
                        : starts ? " (2)"
                                 : "");
  }
  if (saves_higher) {
    text +=
        "(1) once a checkpoint is saved: rank 0, at stages 1 to 3 every rank; before, and without "
        "one, the sum of the columns\n";
  }
  if (starts_higher) {
    text += "(2) rank 0, while it initializes the weights; the others, and the steps, take the sum "
            "of the columns\n";
  }
  return text;
}

std::size_t kept_bytes(const Dataset& samples, const Device& gpu) {
  const SampleSource& source = *samples.train.source;
  return is_kept(source, gpu) ? source.stored_bytes() : 0;
}

void tell_plan(int ranks, const RunOptions& run, const Dataset& samples, Device& device) {
  if (CudaDevice* const gpu = device.cuda(); gpu != nullptr) {
    const std::size_t kept = kept_bytes(samples, *gpu);
    gpu->set_planned([=, &run, &samples] {
      multiply_as(run, *gpu);
      return kept + plan_memory(plan_options(ranks, run, samples), run.zero_stage, *gpu).most();
    });
  }
}

void print_memory_plan(int ranks, const RankOptions& rank, const RunOptions& run,
                       const DataOptions& data) {
  const std::unique_ptr<Device> device = make_device(rank.devices.front(), rank.cluster.local_rank);
  const bool is_host = device->is_host();
  multiply_as(run, *device);
  if (rank.cluster.rank != 0) {
    return;
  }
  const bool is_given = !run.model.is_of_text() || data.data != DataOptions{}.data;
  const Dataset samples = is_given ? find_dataset(data, rank.cluster.rank, rank.cluster.world_size)
                                   : synthetic_for(run.model, 1, 0);
  const MemoryPlanOptions options = plan_options(ranks, run, samples);
  // Of the program that has connected: the code for it, and segments of what comes in.
  constexpr std::size_t k_connected = 3'000'000;
  const std::size_t program =
      is_host ? resident_bytes() + (ranks > 1 ? k_connected : 0) : kept_bytes(samples, *device);
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage <= most_stage(run.optimizer.rule); ++stage) {
    if (stage_taken(stage, ranks, run.offload, is_host) == stage) {
      plans.push_back(plan_memory(options, stage, *device));
    }
  }
  const auto model = make_model(options.model, *device);
  fmt::print("MB that {} takes{}, with batches of {}, by ZeRO's stage: {}, {} parameters, "
             "{}{}{}\n{}",
             ranks == 1 ? "the one rank" : fmt::format("each of {} ranks", ranks),
             is_host ? ""
                     : fmt::format(" of its GPU's memory, besides what CUDA and NCCL take for "
                                   "themselves{}",
                                   device->page_bytes() > 0
                                       ? ""
                                       : ", where stages 2 and 3 free nothing, as the driver "
                                         "cannot unmap memory"),
             run.step.rows_at_once, model->describe(),
             with_commas(static_cast<double>(model->tensors().arena_size())),
             rule_title(run.optimizer.rule),
             run.precision == Precision::fp32
                 ? ""
                 : fmt::format(", {} over float32", precision_name(run.precision)),
             is_given ? "" : "; without the memory of the data, as no --data is given",
             memory_plan_text(plans, program, is_host ? "PROGRAM" : "DATA"));
}

} // namespace trainer
