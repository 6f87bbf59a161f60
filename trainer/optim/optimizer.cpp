#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

using Rule = OptimizerOptions::Rule;

struct Named {
  Rule rule;
  const char* name;
  const char* title;
};
constexpr std::array<Named, 5> k_rules = {{{Rule::sgd, "sgd", "SGD"},
                                           {Rule::adam, "adam", "Adam"},
                                           {Rule::adamw, "adamw", "AdamW"},
                                           {Rule::lamb, "lamb", "LAMB"},
                                           {Rule::muon, "muon", "Muon"}}};

const Named& named(Rule rule) {
  return *std::find_if(k_rules.begin(), k_rules.end(),
                       [&](const Named& one) { return one.rule == rule; });
}

} // namespace

Rule parse_rule(const std::string& name) {
  for (const Named& one : k_rules) {
    if (name == one.name) {
      return one.rule;
    }
  }
  throw UsageError(fmt::format("--optimizer={}: must be sgd, adam, adamw, lamb or muon", name));
}

std::string rule_title(Rule rule) { return named(rule).title; }

Optimizer::Optimizer(const OptimizerOptions& options, std::span<float> parameters,
                     std::span<float> gradients, Device& device, const TensorTable* tensors,
                     const std::vector<ArenaRange>& own, const StatePlaces& places)
    : options_(options), device_(&device), parameters_(parameters), gradients_(gradients),
      tensors_(tensors), passing_(0), state_(device.allocate(k_state_bytes, DType::u8)) {
  rates_.fill(options.learning_rate);
  const bool is_sgd = options.rule == Rule::sgd;
  step_rule_ = {.size = is_sgd                       ? StepRule::Size::rate
                        : options.rule == Rule::lamb ? StepRule::Size::correction
                                                     : StepRule::Size::corrected_rate,
                .beta1 = options.beta1,
                .beta2 = options.beta2};
  const bool is_l2 = is_sgd || options.rule == Rule::adam;
  free_ = {.beta1 = static_cast<float>(is_sgd ? options.momentum : options.beta1),
           .beta2 = static_cast<float>(options.beta2),
           .epsilon = static_cast<float>(options.epsilon)};
  decaying_ = free_;
  decaying_.l2 = static_cast<float>(is_l2 ? options.weight_decay : 0);
  decaying_.decay = is_l2 ? 0 : options.weight_decay;
  set_state(0, 0, {});
  if (needs_whole_tensors() && tensors == nullptr) {
    throw UsageError(fmt::format(
        "--optimizer={}: needs whole tensors, but parameter servers hold parts of tensors",
        named(options.rule).name));
  }
  if (options.rule == Rule::muon) {
    muon_.emplace(*tensors, device);
  }
  set_groups();
  std::size_t count = 0;
  for (const ArenaRange& range :
       own.empty() ? std::vector{ArenaRange{0, parameters.size()}} : own) {
    own_.push_back({range, count});
    count += range.size();
  }
  // AdamW's moments are Adam's, so that a run may switch between them.
  const std::vector<std::string> names =
      options.rule == Rule::sgd    ? std::vector<std::string>{"sgd.momentum"}
      : options.rule == Rule::lamb ? std::vector<std::string>{"lamb.m", "lamb.v"}
      : options.rule == Rule::muon ? std::vector<std::string>{"muon.m", "muon.v"}
                                   : std::vector<std::string>{"adam.m", "adam.v"};
  const Pieces pieces = Pieces::of(count);
  std::vector<StateFiles::RowOptions> rows;
  constexpr const char* k_parameters = "the parameters";
  if (!places.parameters.empty() && device.is_host()) {
    arena_file_ = std::make_unique<ArenaFile>(parameters, own, places.parameters, k_parameters);
    passing_ = Buffer(pieces.largest());
  } else if (!places.parameters.empty()) {
    parameter_row_ = {true, rows.size()};
    rows.push_back({places.parameters, k_parameters});
  }
  std::vector<std::span<float>> on_host;
  if (!places.parameters_on_host.empty()) {
    parameter_row_ = {false, 0};
    on_host.push_back(places.parameters_on_host);
  }
  if (!places.moments.empty()) {
    moment_row_ = {true, rows.size()};
    rows.insert(rows.end(), names.size(), {places.moments, "the optimizer's states"});
  }
  if (!rows.empty()) {
    files_ = std::make_unique<StateFiles>(device, pieces, rows);
  }
  if (places.moments_are_on_host && !moment_row_) {
    moment_row_ = {false, on_host.size()};
  }
  for (const std::string& name : names) {
    if (moment_row_ && moment_row_->is_in_file) {
      moments_.push_back({name, {.file = &files_->row(moment_row_->number + moments_.size())}});
      continue;
    }
    Buffer& values = moment_memory_.emplace_back(places.moments_are_on_host
                                                     ? device.allocate_pinned(count, DType::f32)
                                                     : device.allocate(count, DType::f32));
    moments_.push_back({name, {.memory = values.span()}});
    if (places.moments_are_on_host) {
      std::fill_n(values.data(), count, 0.0F);
    }
    if (moment_row_) {
      on_host.push_back(values.span());
    }
  }
  if (!on_host.empty()) {
    host_ = std::make_unique<HostStates>(device, std::move(on_host));
  }
}

void Optimizer::set_limits(const StepLimits& limits) {
  step_rule_.clip_norm = static_cast<float>(limits.clip_norm);
  step_rule_.skips_overflows = limits.skips_overflows ? 1 : 0;
  step_rule_.loss_scale = limits.loss_scale;
}

void Optimizer::set_state(std::int64_t step, std::int64_t skipped, const LossScale& loss_scale) {
  join();
  step_ = step;
  is_announced_ = false;
  seen_ = {.loss_scale = loss_scale, .step = step, .skipped = skipped};
  device_->stream().copy(&seen_, state_.memory(), sizeof seen_);
}

StepState Optimizer::announce_step(std::size_t samples, const Gathering* gathering) {
  StepInput input{
      .step = step_ + 1, .samples = static_cast<std::int64_t>(samples), .skipped = seen_.skipped};
  std::copy(rates_.begin(), rates_.end(), input.learning_rate);
  device_->kernels().begin(device_->stream(), step_rule_, input,
                           static_cast<StepState*>(state_.memory()), gathering);
  is_announced_ = true;
  StepState state = seen_;
  trainer::begin_step(step_rule_, input, state);
  return state;
}

void Optimizer::begin_step() {
  if (!is_announced_) {
    announce_step();
  }
  is_announced_ = false;
  ++step_;
  if (beside_) { // The device's stream goes on to the next step's state.
    Stream& stream = device_->stream();
    if (last_updated_) {
      stream.wait(*last_updated_); // The last who read the copy that is written now.
    }
    last_updated_ = beside_->record();
    stream.copy(state(), updating(), sizeof(StepState));
    beside_->wait(*stream.record());
  }
  if (host_) {
    host_->begin();
  }
}

void Optimizer::update_beside() {
  if (!beside_) {
    beside_ = device_->make_stream();
  }
}

std::unique_ptr<Event> Optimizer::updated() {
  return parameter_row_ && !parameter_row_->is_in_file ? host_->record() : stream().record();
}

void Optimizer::join() const {
  if (beside_) {
    device_->stream().wait(*beside_->record());
  }
  if (host_) {
    device_->stream().wait(*host_->record());
  }
}

void Optimizer::prepare(const SquareSum* squares, StepState* copy) {
  device_->kernels().prepare(device_->stream(), step_rule_, squares,
                             static_cast<StepState*>(state_.memory()), copy);
}

const std::vector<Optimizer::Moment>& Optimizer::moments() const {
  join();
  if (files_) {
    files_->flush();
  }
  return moments_;
}

ValueFile* Optimizer::parameter_file() const {
  if (!parameter_row_ || !parameter_row_->is_in_file) {
    return arena_file_.get();
  }
  files_->flush();
  return &files_->row(parameter_row_->number);
}

const UpdateRule& Optimizer::rule_of(const Tensor& tensor) const {
  return options_.decays_vectors || tensor.shape.size() > 1 ? decaying_ : free_;
}

bool Optimizer::moves_whole(const Tensor& tensor) const {
  return options_.rule == Rule::lamb || (options_.rule == Rule::muon && is_for_muon(tensor));
}

bool Optimizer::moves_whole(const ArenaRange& range) const {
  std::size_t first = 0;
  return std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    const ArenaRange of = {std::exchange(first, group.last), group.last};
    return group.moves_whole || of.last <= range.first || range.last <= of.first;
  });
}

void Optimizer::set_groups() {
  if (tensors_ == nullptr || (options_.weight_decay == 0 && !needs_whole_tensors())) {
    groups_ = {{parameters_.size(), true, false}};
    return;
  }
  for (const Tensor& tensor : tensors_->tensors()) {
    const bool decays = &rule_of(tensor) == &decaying_;
    const bool is_whole = moves_whole(tensor);
    if (groups_.empty() || groups_.back().decays != decays ||
        groups_.back().moves_whole != is_whole) {
      groups_.push_back({0, decays, is_whole});
    }
    groups_.back().last = tensor.range().last;
    if (is_whole) {
      whole_tensors_.push_back(&tensor);
    }
  }
}

Optimizer::Piece Optimizer::take_piece(std::size_t at, std::size_t count, std::size_t moment) {
  const RowPointers of_files = files_ ? files_->use(moment, stream()) : RowPointers{};
  const RowPointers of_host = host_ ? host_->take(stream(), moment, count) : RowPointers{};
  const auto row_of = [&](const Row& row, std::size_t number) {
    return (row.is_in_file ? of_files : of_host)[row.number + number];
  };
  const auto moment_at = [&](std::size_t number) {
    return moment_row_ ? row_of(*moment_row_, number) : moment_memory_[number].data() + moment;
  };
  if (arena_file_) {
    arena_file_->read(at, passing_.span().first(count));
  }
  return {moment_at(0), moment_at(moments_.size() - 1),
          Parameters(parameter_row_ ? row_of(*parameter_row_, 0)
                     : arena_file_  ? passing_.data()
                                    : parameters_.data() + at,
                     rounded_ == nullptr ? nullptr : rounded_ + at)};
}

void Optimizer::put_back(std::size_t at, std::size_t count) {
  if (host_) {
    host_->put_back(stream());
  }
  if (arena_file_) {
    arena_file_->write(at, passing_.span().first(count));
  }
}

void Optimizer::update_piece(std::size_t at, std::size_t count, std::size_t moment,
                             const Group& group) {
  Stream& stream = this->stream();
  const Kernels& kernels = device_->kernels();
  float* const g = gradients_.data() + at;
  const StepState* const state = updating();
  const UpdateRule& rule = group.decays ? decaying_ : free_;
  const auto [m, v, p] = take_piece(at, count, moment);
  if (group.moves_whole && options_.rule == Rule::lamb) {
    kernels.lamb_direction(stream, count, rule, state, g, m, v, g, p.values);
  } else if (group.moves_whole) {
    UpdateRule with_momentum = rule;
    with_momentum.beta1 = static_cast<float>(options_.momentum);
    kernels.muon_direction(stream, count, with_momentum, state, g, m, g);
  } else if (options_.rule == Rule::sgd) {
    kernels.sgd(stream, count, rule, state, g, m, p);
  } else {
    kernels.adam(stream, count, rule, state, g, m, v, p);
  }
  put_back(at, count);
}

/// Up to where an update goes at once, of what is not in the device's memory.
std::size_t Optimizer::end_of_piece(std::size_t moment) const {
  std::size_t end = arena_file_ ? moment + passing_.size() : SIZE_MAX;
  if (files_) {
    end = std::min(end, files_->end_of_piece(moment));
  }
  return host_ ? std::min(end, moment + host_->largest()) : end;
}

template <typename Body>
void Optimizer::for_each_piece(std::size_t first, std::size_t last, const Body& body) const {
  auto group = groups_.begin();
  const auto begin = std::partition_point(own_.begin(), own_.end(),
                                          [&](const Own& own) { return own.range.last <= first; });
  for (auto own = begin; own != own_.end() && own->range.first < last; ++own) {
    std::size_t moment = own->offset + std::max(first, own->range.first) - own->range.first;
    const std::size_t end = own->offset + std::min(last, own->range.last) - own->range.first;
    while (moment < end) {
      const std::size_t at = own->range.first + moment - own->offset;
      while (group->last <= at) {
        ++group;
      }
      const std::size_t next = std::min({end, end_of_piece(moment), moment + group->last - at});
      body(at, next - moment, moment, *group);
      moment = next;
    }
  }
}

void Optimizer::update_own(std::size_t first, std::size_t last) {
  for_each_piece(first, last,
                 [&](std::size_t at, std::size_t count, std::size_t moment, const Group& group) {
                   update_piece(at, count, moment, group);
                 });
}

void Optimizer::update(std::size_t first, std::size_t last) {
  if (!needs_whole_tensors()) {
    update_own(first, last);
    return;
  }
  for (const Tensor& tensor : tensors_->tensors()) {
    if (tensor.offset >= first && tensor.offset < last) {
      update_own(tensor.offset, tensor.range().last);
      if (moves_whole(tensor)) {
        take_step(tensor, false);
      }
    }
  }
}

void Optimizer::take_step(const Tensor& tensor, bool own_only) {
  const Kernels& kernels = device_->kernels();
  float* const direction = gradients_.data() + tensor.offset;
  const Parameters whole(parameters_.data() + tensor.offset,
                         rounded_ == nullptr ? nullptr : rounded_ + tensor.offset);
  if (options_.rule == Rule::lamb) {
    kernels.lamb_take(stream(), tensor.size, updating(), direction, whole);
    return;
  }
  const Muon::Direction step = muon_->orthogonalised(tensor, direction);
  const auto take = [&](std::size_t from, std::size_t count, const Parameters& parameters) {
    kernels.muon_take(stream(), count, rule_of(tensor), updating(), step.ratio, step.values + from,
                      parameters);
  };
  if (!own_only) {
    take(0, step.count, whole);
    return;
  }
  if (host_) {
    host_->begin(); // Pieces come again that have just gone back.
  }
  for_each_piece(
      tensor.offset, tensor.offset + step.count,
      [&](std::size_t at, std::size_t count, std::size_t moment, const Group& /*group*/) {
        take(at - tensor.offset, count, take_piece(at, count, moment).parameters);
        put_back(at, count);
      });
}

} // namespace trainer
