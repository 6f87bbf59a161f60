// Optimizers on flat ranges of an arena; all constants mean what they mean in PyTorch:
//
//   sgd     momentum without dampening; weight decay as L2, added to the gradient
//   adam    p -= lr / (1 - β1^t) · m / (sqrt(v / (1 - β2^t)) + ε); weight decay as L2
//   adamw   the same, weight decay decoupled: p *= 1 - lr · decay
//   lamb    Adam's direction with decay · p added, scaled by |p| / |u| tensor by tensor (You et
//           al., 2020)
//   muon    matrices by their orthogonalized momentum (optim/muon.h), everything else as adamw
//
// All but LAMB and Muon update each value independently in one pass, so an arena may be updated
// piece by piece, as its buckets arrive, with the same bits as a result. These two have a second
// pass, over whole tensors: the first, value by value, leaves a direction in place of the gradient.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/arena_file.h"
#include "trainer/optim/host_states.h"
#include "trainer/optim/muon.h"
#include "trainer/optim/state_files.h"

namespace trainer {

struct OptimizerOptions {
  enum class Rule { sgd, adam, adamw, lamb, muon };

  Rule rule = Rule::adam;
  double learning_rate = 1e-3;
  double momentum = 0.9; ///< Of SGD and Muon.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decays_vectors = true; ///< Whether weight decay applies to biases and gains of norms.

  bool operator==(const OptimizerOptions&) const = default;
};

/// "sgd", "adam", "adamw", "lamb" or "muon"; throws UsageError naming --optimizer.
OptimizerOptions::Rule parse_rule(const std::string& name);
std::string rule_title(OptimizerOptions::Rule rule); ///< "SGD", "Adam", "AdamW", "LAMB", "Muon"
/// Whether some tensors move as a whole, in a pass of their own.
constexpr bool needs_whole_tensors(OptimizerOptions::Rule rule) {
  return rule == OptimizerOptions::Rule::lamb || rule == OptimizerOptions::Rule::muon;
}

/// ZeRO's last stage at which ranks can update by it: LAMB takes norms of whole parameters, which
/// stage 3 shares out.
constexpr int most_stage(OptimizerOptions::Rule rule) {
  return rule == OptimizerOptions::Rule::lamb ? 2 : 3;
}

/// Clipping and loss scaling, which change or skip a step.
struct StepLimits {
  double clip_norm = 0;         ///< Largest L2 norm of gradients; 0: no clipping.
  bool skips_overflows = false; ///< The loss is scaled, and steps that overflow are skipped.
  LossScaleOptions loss_scale = {};

  /// Whether a step computes the norm of its gradients.
  bool need_norm() const { return clip_norm > 0 || skips_overflows; }
};

/// Where what it updates is between steps; by default in the device's memory.
struct StatePlaces {
  std::string moments = {}; ///< In a file in this folder, unless it is empty.
  /// In pinned memory, of a GPU.
  bool moments_are_on_host = false;
  std::string parameters = {}; ///< As for `moments`. A CPU's arena is paged memory then.
  /// Own parameters in pinned memory, without gaps, as moments are; of a GPU. Outlives the
  /// optimizer.
  std::span<float> parameters_on_host = {};
};

class Optimizer {
 public:
  /// A step's state, and two copies of it that updates beside the next step read.
  static constexpr std::size_t k_state_bytes = 3 * sizeof(StepState);

  /// A value kept per parameter, initially zero.
  struct Moment {
    std::string name; ///< "adam.m"
    StoredValues values;
  };

  /// `tensors`: those of the arena; LAMB and Muon need them, and without them the whole arena
  /// decays alike. `gradients`: LAMB and Muon write to them, too. `own`: the ranges of the arena
  /// that it updates and keeps moments for, ascending; by default all. Parameters in files are of
  /// these ranges, too, and start as zeros.
  Optimizer(const OptimizerOptions& options, std::span<float> parameters,
            std::span<float> gradients, Device& device, const TensorTable* tensors = nullptr,
            const std::vector<ArenaRange>& own = {}, const StatePlaces& places = {});

  /// Sets clipping and loss scaling for the steps from here on.
  void set_limits(const StepLimits& limits);

  /// Queues the start of the step after step(), t = 1, 2, …, with `samples` samples on all ranks
  /// (0: this rank has none), and the gather of a batch. Returns the state of the step, as far as
  /// the host knows it.
  StepState announce_step(std::size_t samples = 1, const Gathering* gathering = nullptr);
  /// Counts that step; announces it if that has not been done.
  void begin_step();
  /// Queues the consequences of the gradients' sum of squares over all ranks: with gradients that
  /// are not finite nothing is updated, and t does not advance. Also writes the state to `*copy` in
  /// host memory unless that is null.
  void prepare(const SquareSum* squares, StepState* copy = nullptr);
  /// Updates its own part of parameters [first, last) from the gradients there. `first` and `last`
  /// are multiples of 16. With needs_whole_tensors() all is its own, and they are bounds of
  /// tensors.
  void update(std::size_t first, std::size_t last);
  bool needs_whole_tensors() const { return trainer::needs_whole_tensors(options_.rule); }

  /// update() in two, of an optimizer that has parts of tensors. The first is the whole update, but
  /// of tensors that move as a whole, for which it writes the own part of a direction in place of
  /// their gradient. Once all parts of it are there, take_step() moves the tensor: all of it, or,
  /// where other parameters are not there, its own part, of Muon alone.
  void update_own(std::size_t first, std::size_t last);
  void take_step(const Tensor& tensor, bool own_only);
  /// Those that move as a whole, and whether all of a range do.
  const std::vector<const Tensor*>& whole_tensors() const { return whole_tensors_; }
  bool moves_whole(const ArenaRange& range) const;

  /// From now on updates run on a stream of their own, beside the device's: a step's begin once the
  /// device's stream has come to begin_step(). Only of a GPU, and not with needs_whole_tensors().
  void update_beside();
  /// The stream on which updates run.
  Stream& stream() { return beside_ ? *beside_ : device_->stream(); }
  /// An event that passes when all parameters are there whose update() was called.
  std::unique_ptr<Event> updated();
  /// What is put on the device's stream from now on comes after all updates.
  void join() const;

  /// Reads gradients from there from now on.
  void set_gradients(std::span<float> gradients) { gradients_ = gradients; }
  /// Where update() also writes parameters in bf16: a whole arena in device memory; null: nowhere.
  void set_rounded(Bf16Value* rounded) { rounded_ = rounded; }

  /// update() also writes parameters on the host in the type of `halves`, to this pinned memory.
  void round_on_host(const Buffer& halves) { host_->round_first(halves); }

  std::int64_t step() const { return step_; }
  /// The state of the last announced step, in device memory.
  const StepState* state() const { return static_cast<const StepState*>(state_.memory()); }
  /// The state that the host has seen last, see(): skipped steps and loss scale lag behind the
  /// device.
  const StepState& seen() const { return seen_; }
  void see(const StepState& state) { seen_ = state; }
  /// Continues a run from here. Waits for the device.
  void set_state(std::int64_t step, std::int64_t skipped, const LossScale& loss_scale);
  /// Learning rates of the steps from here on: for seen().skipped skipped steps, for one more, ….
  using Rates = std::array<double, StepInput::k_rates>;
  void set_learning_rates(const Rates& rates) { rates_ = rates; }
  void set_learning_rate(double rate) { rates_.fill(rate); }
  /// Some of what it updates is in files, so that an update is more than kernels.
  bool is_in_files() const { return files_ != nullptr; }
  /// Some of what it updates is not in the device's memory.
  bool is_elsewhere() const { return files_ != nullptr || host_ != nullptr; }
  /// Each moment for all own ranges, without gaps; current until the next update().
  const std::vector<Moment>& moments() const;
  /// The parameters of all own ranges: likewise; but a CPU's are as in the arena. Null: they are
  /// not in a file.
  ValueFile* parameter_file() const;

 private:
  /// A part of the arena, and the offset of its moments.
  struct Own {
    ArenaRange range;
    std::size_t offset;
  };

  /// A part of the arena that is updated alike.
  struct Group {
    std::size_t last;
    bool decays;
    bool moves_whole;
  };
  bool moves_whole(const Tensor& tensor) const;
  void set_groups();
  std::size_t end_of_piece(std::size_t moment) const;
  /// The state that a step's updates read.
  StepState* updating() const {
    return static_cast<StepState*>(state_.memory()) + (beside_ ? 1 + step_ % 2 : 0);
  }
  const UpdateRule& rule_of(const Tensor& tensor) const;
  /// Calls body(at, count, moment) with each piece of its own part of [first, last): from `at` of
  /// the arena on, with moments from `moment` on.
  template <typename Body>
  void for_each_piece(std::size_t first, std::size_t last, const Body& body) const;
  /// Where the values of a piece are while they are updated, until put_back().
  struct Piece {
    float* m;
    float* v;
    Parameters parameters;
  };
  Piece take_piece(std::size_t at, std::size_t count, std::size_t moment);
  void put_back(std::size_t at, std::size_t count);
  void update_piece(std::size_t at, std::size_t count, std::size_t moment, const Group& group);

  OptimizerOptions options_;
  Device* device_;
  std::span<float> parameters_;
  std::span<float> gradients_;
  Bf16Value* rounded_ = nullptr;
  const TensorTable* tensors_;
  std::vector<Own> own_;
  std::vector<Moment> moments_;
  std::vector<Buffer> moment_memory_;     ///< Those that are not in files.
  std::unique_ptr<ArenaFile> arena_file_; ///< What a CPU's parameters are in; null: memory.
  Buffer passing_;                        ///< A piece of them, while it is updated.
  std::unique_ptr<StateFiles> files_;     ///< Null: all else is in memory.
  std::unique_ptr<HostStates> host_;      ///< Null: nothing is in the host's, for a GPU.
  struct Row {
    bool is_in_file; ///< In files_; else in host_.
    std::size_t number;
  };
  std::optional<Row> parameter_row_; ///< Nothing: they are in the arena.
  std::optional<Row> moment_row_;    ///< The first one's; nothing: they are in the device's memory.
  StepRule step_rule_;
  UpdateRule decaying_;
  UpdateRule free_;           ///< Rule for parameters without weight decay.
  std::vector<Group> groups_; ///< In the order of the arena, which they fill.
  std::vector<const Tensor*> whole_tensors_;
  std::optional<Muon> muon_;
  Rates rates_;
  Buffer state_; ///< k_state_bytes.
  StepState seen_;
  std::int64_t step_ = 0;
  bool is_announced_ = false;
  std::unique_ptr<Stream> beside_;      ///< Null: updates run on the device's stream.
  std::shared_ptr<Event> last_updated_; ///< All steps before the last one.
};

} // namespace trainer
