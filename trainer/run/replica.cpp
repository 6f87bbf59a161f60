#include "trainer/run/replica.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/device/cpu/plain_layers.h"
#include "trainer/device/host_memory.h"
#include "trainer/device/host_view.h"
#include "trainer/strategy/gathered.h"

namespace trainer {
namespace {

/// The ranges that its optimizer updates; empty: all.
std::vector<ArenaRange> own_ranges(const Model& model, const Sharding& sharding,
                                   const Communicator* communicator) {
  if (sharding.stage == 0) {
    return {};
  }
  return Shards(model.tensors().arena_size(), sharding.buckets, communicator->rank(),
                communicator->world_size())
      .own();
}

/// The flag by which the model's largest tensor is as large as it is.
const char* flag_of(const Tensor& largest, const ModelOptions& options) {
  if (options.is_of_text()) {
    return "--hidden or --preset";
  }
  return largest.shape.front() == options.classes ? "--classes" : "--hidden";
}

/// Throws UsageError, naming the flag to change, if this machine's memory surely cannot hold
/// `copies` of the model's parameters: what lies beyond it would be killed without a word.
std::unique_ptr<Model> make_fitting(const ModelOptions& options, Device& device, double copies) {
  std::unique_ptr<Model> model = make_model(options, device);
  constexpr double k_giga = 1e9;
  const double takes = copies * static_cast<double>(model->tensors().arena_size()) * sizeof(float);
  const auto has = static_cast<double>(host_memory_bytes());
  if (device.is_host() && takes > has) {
    const std::vector<Tensor>& tensors = model->tensors().tensors();
    const Tensor& largest =
        *std::max_element(tensors.begin(), tensors.end(),
                          [](const Tensor& a, const Tensor& b) { return a.size < b.size; });
    throw UsageError(fmt::format("{}: the model takes {:.1f} GB of memory or more, most of it for "
                                 "{}, and this machine has {:.1f} GB; choose a smaller model",
                                 flag_of(largest, options), takes / k_giga, largest.name,
                                 has / k_giga));
  }
  return model;
}

/// Of the parameters, in memory of this rank's; an optimizer keeps at least one moment of each.
double copies_of(const Sharding& sharding, const Communicator* communicator,
                 const Offload& offload) {
  if (sharding.stage == 3) {
    return offload.parameters.empty() ? 1.0 / communicator->world_size() : 0;
  }
  return sharding.stage == 0 && offload.optimizer.empty() ? 2 : 1;
}

} // namespace

void set_matmul_precision(Device& device, MatmulPrecision precision) {
  if (!device.set_matmul_precision(precision)) {
    throw UsageError(fmt::format("--matmul-precision={} needs a GPU of compute capability {} or "
                                 "later, and cuBLASLt; drop it for {}",
                                 precision == MatmulPrecision::fp8 ? "fp8: FP8" : "high: TF32",
                                 precision == MatmulPrecision::fp8 ? "8.9" : "8.0",
                                 device.describe()));
  }
}

std::size_t factors_size(const Model& model) {
  constexpr std::size_t k_most_rows_behind = 8; // Of words' rows, filled up (Matmul::b_rows).
  std::size_t size = model.tensors().arena_size();
  for (const Tensor& tensor : model.tensors().tensors()) {
    if (tensor.is_embedding) {
      size = std::max(size, tensor.range().last + k_most_rows_behind * tensor.shape[1]);
    }
  }
  return size;
}

Replica::Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
                 Device& device_, Communicator* communicator, const Sharding& sharding_,
                 const Offload& offload)
    : device(device_),
      model(make_fitting(model_options, device, copies_of(sharding_, communicator, offload))),
      sharding(sharding_), own(own_ranges(*model, sharding, communicator)),
      memory(sharding.stage == 0   ? device.allocate(model->tensors().arena_size(), DType::f32)
             : sharding.stage == 3 ? device.allocate_paged(model->tensors().arena_size())
                                   : Buffer(0)),
      parameters(memory.size() > 0
                     ? memory.span()
                     : communicator->allocate_on_device(model->tensors().arena_size())),
      own_memory(sharding.stage == 3 && offload.parameters_are_on_host && !device.is_host()
                     ? device.allocate_pinned(floats_in(own), DType::f32)
                     : Buffer(0)),
      own_halves(0),
      gradient_memory(sharding.stage >= 2 ? device.allocate_paged(parameters.size()) : Buffer(0)),
      rounded(0), halves(0), factors(0),
      optimizer(optimizer_options, parameters, {}, device, &model->tensors(), own,
                {.moments = offload.optimizer,
                 .moments_are_on_host = offload.optimizer_is_on_host && !device.is_host(),
                 .parameters = sharding.stage == 3 ? offload.parameters : "",
                 .parameters_on_host = own_memory.span()}) {}

Replica::Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
                 Device& device_)
    : Replica(model_options, optimizer_options, device_, nullptr, {}, {}) {}

Replica::Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
                 Device& device_, Communicator& communicator)
    : Replica(model_options, optimizer_options, device_) {
  attach(communicator);
}

Replica::Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
                 Device& device_, Communicator& communicator, const Sharding& sharding_,
                 const Offload& offload)
    : Replica(model_options, optimizer_options, device_, &communicator,
              {stage_taken(sharding_.stage, communicator.world_size(), offload, device_.is_host()),
               sharding_.buckets},
              offload) {}

Replica::Replica(const ModelOptions& model_options, Device& device_)
    : device(device_), model(make_model(model_options, device)), memory(0), own_memory(0),
      own_halves(0), gradient_memory(0), rounded(0), halves(0), factors(0),
      optimizer({}, {}, {}, device, nullptr, {ArenaRange{}}) {}

void Replica::place(std::span<float> parameters_, std::span<float> gradients_) {
  if (!device.is_host()) {
    memory = device.allocate(parameters_.size(), DType::f32);
    gradient_memory = device.allocate(gradients_.size(), DType::f32);
  }
  parameters = device.is_host() ? parameters_ : memory.span();
  gradients = device.is_host() ? gradients_ : gradient_memory.span();
}

void Replica::compute_in(Precision precision_) {
  precision = precision_;
  if (precision == Precision::fp32) {
    return;
  }
  device.multiply_in(half_type(precision));
  if (takes_factors() && sharding.stage < 3) {
    factors = device.allocate(factors_size(*model), DType::bf16);
    optimizer.set_rounded(sharding.stage == 0 ? factors_at() : nullptr);
  }
  if (!rounds() && sharding.stage < 3) {
    return;
  }
  rounded = sharding.stage == 3 ? device.allocate_paged(parameters.size())
                                : device.allocate(parameters.size(), DType::f32);
}

void Replica::initialize(std::uint64_t seed) const {
  if (sharding.stage < 3) {
    const HostView view(device, parameters);
    model->initialize(seed, view.values());
    view.write_back();
    return;
  }
  const Buffer whole = Buffer::paged(parameters.size(), DType::f32);
  model->initialize(seed, whole.span());
  const OwnChunks chunks = own_chunks();
  chunks.for_each(own, [&](std::size_t at, const ArenaRange& range) {
    chunks.values.write(device, at, whole.span().subspan(range.first, range.size()));
  });
}

std::string Replica::suspect() const {
  if (sharding.stage < 3) {
    return model->tensors().suspect(HostView(device, parameters).values());
  }
  const Buffer whole = Buffer::paged(parameters.size(), DType::f32);
  const OwnChunks chunks = own_chunks();
  chunks.for_each(own, [&](std::size_t at, const ArenaRange& range) {
    chunks.values.read(device, at, whole.span().subspan(range.first, range.size()));
  });
  return model->tensors().suspect(whole.span());
}

std::unique_ptr<Replicated> Replica::make_owner(Communicator& communicator,
                                                UpdatedBuckets* updated) const {
  Arenas arenas{.parameters = parameters,
                .gradients = gradients,
                .precision = rounded.size() > 0 ? precision : Precision::fp32,
                .rounded = rounded.span(),
                .halves = halves.span(),
                .factors = factors_at(),
                .keeps_factors = sharding.stage == 0,
                .device = &device,
                .updated = updated};
  if (sharding.stage < 3) {
    return std::make_unique<Replicated>(model->units(), arenas);
  }
  for (const Tensor& tensor : model->tensors().tensors()) {
    if (tensor.is_embedding) {
      arenas.embeddings.push_back(tensor.range());
    }
  }
  auto owner = std::make_unique<Gathered>(communicator, device, model->units(),
                                          shards(communicator), arenas, own_chunks());
  owner->change(); // Keeps only the chunks that this rank owns.
  return owner;
}

/// What a rank gathers in 16 bits, and its own part of that, where it has it elsewhere.
void Replica::make_halves(Communicator& communicator) {
  halves = Buffer(0);
  own_halves = Buffer(0);
  if (precision == Precision::fp32 || (communicator.world_size() == 1 && device.is_host())) {
    communicator.use_on_device(parameters);
    return;
  }
  halves = device.allocate_paged(parameters.size() / 2);
  communicator.use_on_device(halves.span());
  if (own_memory.size() > 0) {
    own_halves = device.allocate_pinned(own_memory.size(), half_type(precision));
    plain_narrow(device.stream(), own_memory.size(), own_halves.dtype(), own_memory.data(),
                 own_halves.memory());
    optimizer.round_on_host(own_halves);
  }
}

void Replica::attach(Communicator& communicator, std::size_t more) {
  if (sharding.stage == 3) {
    make_halves(communicator);
  }
  const bool is_apart = gradient_memory.size() > 0;
  if (is_apart || !device.is_host()) {
    gradients =
        is_apart ? gradient_memory.span() : communicator.allocate_on_device(parameters.size());
    registered = more > 0 ? communicator.allocate(more) : std::span<float>();
  } else {
    const std::span<float> both = communicator.allocate(parameters.size() + more);
    gradients = both.first(parameters.size());
    registered = both.subspan(parameters.size());
  }
  if (is_apart) {
    communicator.use_on_device(gradients);
  }
  optimizer.set_gradients(gradients);
}

} // namespace trainer
