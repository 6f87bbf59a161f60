#include "trainer/forecast/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "trainer/collectives/forwarding.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/feed.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/ranges.h"
#include "trainer/errors.h"
#include "trainer/monitor/console.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/reduced.h"

namespace trainer {
namespace {

/// Of an arena that begins with a page: which pages take memory.
class Pages {
 public:
  Pages(std::size_t floats, const Device& device)
      : page_(std::max<std::size_t>(device.page_bytes(), 1)), is_host_(device.is_host()),
        is_here_(pages_up(floats)) {}

  void write(const ArenaRange& range) {
    written_.add(range.first, range.last);
    set(pages_down(range.first), pages_up(range.last), true);
  }
  /// As Device::discard(): a CPU frees pages that are all in the range, a GPU those in which
  /// nothing else is left.
  void discard(const ArenaRange& range) {
    if (is_host_) {
      set(pages_up(range.first), pages_down(range.last), false);
      return;
    }
    written_.remove(range.first, range.last);
    const std::size_t floats = page_ / sizeof(float);
    for (std::size_t page = pages_down(range.first); page < pages_up(range.last); ++page) {
      set(page, page + 1, written_.touches(page * floats, (page + 1) * floats));
    }
  }
  std::size_t bytes() const { return here_ * page_; }

 private:
  std::size_t pages_down(std::size_t floats) const { return floats * sizeof(float) / page_; }
  std::size_t pages_up(std::size_t floats) const {
    return (floats * sizeof(float) + page_ - 1) / page_;
  }
  void set(std::size_t first, std::size_t last, bool here) {
    for (std::size_t page = first; page < last; ++page) {
      here_ += here && !is_here_[page] ? 1 : 0;
      here_ -= !here && is_here_[page] ? 1 : 0;
      is_here_[page] = here;
    }
  }

  std::size_t page_;
  bool is_host_;
  std::vector<bool> is_here_;
  std::size_t here_ = 0;
  Ranges written_; ///< And not discarded since.
};

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
  void move_to_file(std::span<float> part, const std::string& folder) override {
    gpu_.move_to_file(part, folder);
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

ArenaRange place_in(std::span<const float> arena, std::span<const float> part) {
  const auto first = static_cast<std::size_t>(part.data() - arena.data());
  return {first, first + part.size()};
}

/// Copies nothing, as nothing is there.
class IdleStream final : public Stream {
 public:
  explicit IdleStream(Stream& stream) : stream_(stream) {}
  std::unique_ptr<Event> record() override { return stream_.record(); }
  std::unique_ptr<Event> record_timed() override { return stream_.record_timed(); }
  void wait(const Event& /*event*/) override {}
  void copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) override {}
  void clear(void* /*memory*/, std::size_t /*bytes*/) override {}

 private:
  Stream& stream_;
};

/// A device and a communicator for Gathered, which note what it has come and go.
class NotingDevice final : public CpuDevice {
 public:
  NotingDevice(std::span<const float> arena, Pages& pages) : arena_(arena), pages_(pages) {}
  void discard(std::span<float> part) override { pages_.discard(place_in(arena_, part)); }
  void release(std::span<float> part) override { discard(part); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<IdleStream>(stream()); }

 private:
  std::span<const float> arena_;
  Pages& pages_;
};

class NotingCommunicator final : public ForwardingCommunicator {
 public:
  /// `gathers`: of several ranks, or to a GPU; else parameters come as they are read.
  NotingCommunicator(Communicator& alone, std::span<const float> arena, Pages& pages, bool gathers)
      : ForwardingCommunicator(alone), arena_(arena), pages_(pages), gathers_(gathers) {}
  using Communicator::start;
  Ticket start(Collective collective) override {
    if (gathers_) {
      const auto* first = reinterpret_cast<const float*>(collective.range.data());
      pages_.write(place_in(arena_, {first, collective.range.count()}));
    }
    return 0;
  }

 private:
  std::span<const float> arena_;
  Pages& pages_;
  bool gathers_;
};

/// A step of training at a stage at which ranks share gradients, and perhaps parameters.
class Rehearsal final : private ParameterOwner {
 public:
  Rehearsal(const MemoryPlanOptions& options, const Model& model, const Shards& shards,
            const Device& device, MemoryPlan& plan)
      : options_(options), model_(model), shards_(shards), is_host_(device.is_host()), plan_(plan),
        floats_(model.tensors().arena_size()), parameters_(floats_, device),
        gradients_(floats_, device), rounded_(floats_, device) {}

  void run() {
    const ArenaRange all = {0, floats_};
    const Buffer arena = Buffer::paged(floats_, DType::f32);
    const auto alone = make_single_rank();
    NotingDevice device(arena.span(), parameters_);
    NotingCommunicator communicator(*alone, arena.span(), parameters_, !reads_file());
    const bool is_on_host = !is_host_ && options_.offload.parameters_are_on_host;
    Gathered gathered(communicator, device, model_.units(), shards_, {arena.span()},
                      {arena.span(), !is_on_host}, !options_.offload.parameters.empty());
    parameters_.write(all);
    if (plan_.stage == 3) {
      gathered_ = &gathered;
      gathered.change();
    } else if (is_mixed()) {
      rounded_.write(all);
    }
    for (const ArenaRange& own : shards_.own()) {
      gradients_.write(own);
    }
    constexpr int k_steps = 2; // The first one learns in which order units are needed.
    for (int step = 0; step < k_steps; ++step) {
      if (options_.accumulates) {
        gradients_.write(all);
      }
      started_ = given_back_ = final_ = 0;
      gathered.begin_pass();
      model_.rehearse(options_.like.rows, *this, [&](std::size_t unit) {
        if (is_host_) {
          gradients_.write(model_.units()[unit]);
          look();
        }
      });
      give_back(shards_.buckets().size());
      if (gathered_ != nullptr) {
        gathered_->change();
      }
    }
    gathered_ = nullptr;
    at_rest_ = parameters_.bytes() + gradients_.bytes() + rounded_.bytes();
  }

  std::size_t at_rest() const { return at_rest_; } ///< Between two steps.

 private:
  bool is_mixed() const { return is_host_ && options_.precision != Precision::fp32; }
  /// One rank on a CPU reads its parameters where its file is mapped.
  bool reads_file() const { return is_host_ && options_.ranks == 1; }

  UnitMemory need(std::size_t unit) override {
    if (gathered_ != nullptr) {
      gathered_->need(unit);
      if (reads_file()) {
        parameters_.write(model_.units()[unit]);
      }
      if (is_mixed()) {
        rounded_.write(model_.units()[unit]);
      }
      look();
    }
    return {};
  }

  /// A CPU's gradients take memory as they become final, or are ahead.
  void write(std::size_t unit) override {
    if (!is_host_) {
      gradients_.write(model_.units()[unit]);
      look();
    }
  }

  void done(std::size_t unit) override {
    if (gathered_ != nullptr) {
      gathered_->done(unit);
      if (is_mixed()) {
        rounded_.discard(model_.units()[unit]);
      }
    }
  }

  std::size_t granularity() const override { return shards_.buckets().front().size(); }

  /// As TrainingStep::start().
  void final(std::size_t count) override {
    if (is_host_) {
      gradients_.write({final_, count});
    }
    final_ = count;
    look();
    for (; started_ < shards_.buckets().size() && shards_.buckets()[started_].last <= count;) {
      if (!is_host_) {
        gradients_.write(shards_.buckets()[started_]);
        look();
      }
      ++started_;
      give_back(started_ - std::min(started_, k_sums_under_way));
    }
  }

  void give_back(std::size_t buckets) {
    for (; given_back_ < buckets; ++given_back_) {
      const ArenaRange& whole = shards_.buckets()[given_back_];
      const ArenaRange own = shards_.own(given_back_);
      gradients_.discard({whole.first, own.first});
      gradients_.discard({own.last, whole.last});
    }
  }

  void look() {
    const std::size_t now = parameters_.bytes() + gradients_.bytes() + rounded_.bytes();
    if (now > most_) {
      most_ = now;
      plan_.parameters = parameters_.bytes();
      plan_.gradients = gradients_.bytes();
      plan_.rounded = is_mixed() ? rounded_.bytes() : plan_.rounded;
    }
  }

  const MemoryPlanOptions& options_;
  const Model& model_;
  const Shards& shards_;
  bool is_host_;
  MemoryPlan& plan_;
  std::size_t floats_;
  Pages parameters_;
  Pages gradients_;
  Pages rounded_;
  Gathered* gathered_ = nullptr; ///< At stage 3.
  std::size_t started_ = 0;      ///< Buckets,
  std::size_t given_back_ = 0;   ///< and those whose remote part was freed.
  std::size_t final_ = 0;        ///< Gradients.
  std::size_t at_rest_ = 0;
  std::size_t most_ = 0;
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

/// Of the weights in 16 bits: a CPU's own copy of them, or a GPU's below stage 3.
std::size_t rounded_bytes(const MemoryPlanOptions& options, const Model& model,
                          const Device& device, int stage) {
  if (options.precision == Precision::fp32) {
    return 0;
  }
  if (device.is_host()) {
    return model.tensors().arena_size() * sizeof(float);
  }
  return stage < 3 && device.activation_type() == DType::bf16 && model.takes_rounded()
             ? factors_size(model) * size_of(DType::bf16)
             : 0;
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
    plan.activations = on_gpu ? on_gpu->bytes() + batch_bytes(options.like) : count.bytes();
  }
  const TensorTable& tensors = model->tensors();
  const std::size_t floats = tensors.arena_size();
  const std::size_t whole = floats * sizeof(float);
  const Shards shards(floats, options.buckets, 0, options.ranks);
  std::size_t moments = 0;
  {
    const Buffer parameters = Buffer::paged(floats, DType::f32);
    const BufferCount count;
    CpuDevice cpu;
    const Optimizer optimizer(options.optimizer, parameters.span(), {}, cpu, &tensors,
                              plan.stage == 0 ? std::vector<ArenaRange>{} : shards.own());
    moments = count.bytes() - sizeof(StepState);
    if (options.offload.optimizer.empty()) {
      plan.moments = moments;
    } else if (!on_gpu && !optimizer.needs_whole_tensors()) { // Else but for the largest tensor's.
      const std::size_t kinds = optimizer.moments().size();
      plan.moments = MomentFiles::memory_bytes(kinds, moments / kinds / sizeof(float));
    }
    for (const Optimizer::Moment& moment : optimizer.moments()) {
      if (on_gpu && options.offload.optimizer_is_on_host) {
        plan.moments -= moment.values.bytes();
      }
    }
  }
  const std::size_t rounded = rounded_bytes(options, *model, device, plan.stage);
  std::size_t at_rest = 2 * whole + rounded;
  if (plan.stage < 2 || device.page_bytes() == 0) {
    plan.parameters = plan.gradients = whole;
    plan.rounded = rounded;
  } else {
    plan.rounded = on_gpu ? rounded : 0;
    Rehearsal rehearsal(options, *model, shards, device, plan);
    rehearsal.run();
    at_rest = rehearsal.at_rest();
  }
  if (on_gpu) { // What it saves is copied to the host, where ranks that share weights draw them.
    plan.start = plan.stage < 3 ? whole + rounded + (plan.stage < 2 ? whole : 0) + plan.moments : 0;
    return plan;
  }
  // Moments in files are sent to the other ranks one at a time.
  plan.start = whole + rounded + (plan.stage < 2 ? whole : 0) +
               (options.offload.optimizer.empty() ? moments : moments / 2);
  if (options.saves) {
    // What a rank saves is copied, and its copy kept for the next time; but what lies in files.
    const std::size_t own = shards.own_floats() * sizeof(float);
    const bool is_in_files = !options.offload.optimizer.empty() ||
                             (plan.stage == 3 && !options.offload.parameters.empty());
    const std::size_t copied = plan.stage == 0 ? whole + moments : is_in_files ? 0 : own + moments;
    const std::size_t saving = at_rest + plan.moments + plan.activations;
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

void print_memory_plan(int ranks, const RankOptions& rank, const RunOptions& run,
                       const DataOptions& data) {
  const std::unique_ptr<Device> device =
      make_device(rank.devices.front(), rank.cluster.local_rank, rank.no_gpu);
  const bool is_host = device->is_host();
  if (!is_host && run.precision != Precision::fp32) {
    device->multiply_in(run.precision == Precision::bf16 ? DType::bf16 : DType::f16);
  }
  if (rank.cluster.rank != 0) {
    return;
  }
  const bool is_given = !run.model.is_of_text() || data.data != DataOptions{}.data;
  const Dataset samples = is_given ? find_dataset(data, rank.cluster.rank, rank.cluster.world_size)
                                   : synthetic_for(run.model, 1, 0);
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
  const SampleSource& source = *samples.train.source;
  for (const FieldType& field : source.fields()) {
    options.like[field.name] = {nullptr, field.width, field.type};
  }
  // Of the program that has connected: the code for it, and segments of what comes in.
  constexpr std::size_t k_connected = 3'000'000;
  const std::size_t program = is_host ? resident_bytes() + (ranks > 1 ? k_connected : 0)
                              : is_kept(source, *device) ? source.stored_bytes()
                                                         : 0;
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage <= (needs_whole_tensors(run.optimizer.rule) ? 0 : 3); ++stage) {
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
