// Optimizers over flat ranges of an arena, with PyTorch's meaning of every constant:
//
//   sgd     momentum without dampening; weight decay as L2, added to the gradient
//   adam    p -= lr / (1 - β1^t) · m / (sqrt(v / (1 - β2^t)) + ε); weight decay as L2
//   adamw   the same, weight decay decoupled: p *= 1 - lr · decay
//   lamb    Adam's direction with decay · p added, scaled by |p| / |u| tensor by tensor (You et
//           al., 2020)
//   muon    matrices along their momentum made orthogonal (optim/muon.h), all else as adamw
//
// All but LAMB and Muon update every value in one pass and by itself, so an arena may be updated
// piece by piece, as its buckets arrive, with the same bits as a result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/muon.h"

namespace trainer {

struct OptimizerOptions {
  enum class Rule { sgd, adam, adamw, lamb, muon };

  Rule rule = Rule::adam;
  double learning_rate = 1e-3;
  double momentum = 0.9; ///< SGD's and Muon's.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decays_vectors = true; ///< Biases and what norms are multiplied by.

  bool operator==(const OptimizerOptions&) const = default;
};

/// "sgd", "adam", "adamw", "lamb" or "muon"; throws UsageError naming --optimizer.
OptimizerOptions::Rule parse_rule(const std::string& name);
std::string rule_title(OptimizerOptions::Rule rule); ///< "SGD", "Adam", "AdamW", "LAMB", "Muon"
/// Then a tensor is updated all at once, and no rank can own a part of it.
constexpr bool needs_whole_tensors(OptimizerOptions::Rule rule) {
  return rule == OptimizerOptions::Rule::lamb || rule == OptimizerOptions::Rule::muon;
}

/// What may keep a step from being taken as it is.
struct StepLimits {
  double clip_norm = 0;       ///< What the gradients' L2 norm is brought down to; 0: it is left.
  bool is_in_16_bits = false; ///< They may overflow, and the loss is scaled.
  LossScaleOptions loss_scale = {};

  /// Whether a step takes its gradients' norm.
  bool need_norm() const { return clip_norm > 0 || is_in_16_bits; }
};

class Optimizer {
 public:
  /// What it keeps of each parameter, zero to begin with.
  struct Moment {
    std::string name; ///< "adam.m"
    Buffer values;
  };

  /// `tensors`: of the arena; LAMB and Muon need them, and else all of it decays alike. `own`: what
  /// of the arena it updates and keeps moments of, in ascending order; all of it by itself.
  /// `folder`: where these lie in files, and take memory only while they are used; empty: they do
  /// not. `on_host`: they are in pinned memory of the host, where a GPU's kernels update them.
  Optimizer(const OptimizerOptions& options, std::span<float> parameters,
            std::span<const float> gradients, Device& device, const TensorTable* tensors = nullptr,
            const std::vector<ArenaRange>& own = {}, const std::string& folder = "",
            bool on_host = false);

  /// How gradients are clipped, and the loss is scaled, in the steps from here on.
  void set_limits(const StepLimits& limits);

  /// Puts on the stream what the host knows of step t = 1, 2, …, the one after step(), of so many
  /// samples over all ranks; 0: this rank's count for nothing; a batch is gathered meanwhile.
  /// Gives the state of it, as far as is known here.
  StepState announce_step(std::size_t samples = 1, const Gathering* gathering = nullptr);
  /// Counts that step; announces it where that was not done.
  void begin_step();
  /// Puts on the stream what follows from the sum of squares of its gradients, over all ranks:
  /// nothing is updated where they are no numbers, and t is that of the steps that update.
  /// Writes the state to `*copy` in host memory too, if not null.
  void prepare(const double* squares, StepState* copy = nullptr);
  /// Updates those of parameters [first, last) that are its own from the gradients there.
  /// Multiples of 16; LAMB and Muon: whole tensors.
  void update(std::size_t first, std::size_t last);
  bool needs_whole_tensors() const { return trainer::needs_whole_tensors(options_.rule); }

  /// Takes them from there from now on.
  void set_gradients(std::span<const float> gradients) { gradients_ = gradients; }
  /// Where update() writes parameters in bf16 too, all of the arena, in the device's memory; null:
  /// nowhere.
  void set_rounded(Bf16Value* rounded) { rounded_ = rounded; }

  std::int64_t step() const { return step_; }
  /// In the device's memory: of the step that was announced last.
  const StepState* state() const { return static_cast<const StepState*>(state_.memory()); }
  /// As the host has seen it last, see(): of skipped steps, and of the loss scale, behind them.
  const StepState& seen() const { return seen_; }
  void see(const StepState& state) { seen_ = state; }
  /// A run goes on from here. Waits for the device.
  void set_state(std::int64_t step, std::int64_t skipped, const LossScale& loss_scale);
  /// Of the steps that begin from here on: where seen().skipped steps were skipped, one more, ….
  using Rates = std::array<double, StepInput::k_rates>;
  void set_learning_rates(const Rates& rates) { rates_ = rates; }
  void set_learning_rate(double rate) { rates_.fill(rate); }
  /// The moments have been used by somebody else: where they lie in files, they take no memory
  /// again.
  void put_away() const;
  /// Each of all its own ranges, one behind the other.
  const std::vector<Moment>& moments() const { return moments_; }

 private:
  /// Part of the arena, and where its moments begin.
  struct Own {
    ArenaRange range;
    std::size_t offset;
  };

  /// Part of the arena that decays alike.
  struct Group {
    std::size_t last;
    bool decays;
  };
  void set_groups();
  const UpdateRule& rule_of(const Tensor& tensor) const;
  /// Values at `at` of the arena, whose moments begin at `moment` of all its own.
  void update(std::size_t at, std::size_t count, std::size_t moment, const UpdateRule& rule,
              const Tensor* tensor);

  OptimizerOptions options_;
  Device* device_;
  std::span<float> parameters_;
  std::span<const float> gradients_;
  Bf16Value* rounded_ = nullptr;
  const TensorTable* tensors_;
  std::vector<Own> own_;
  std::vector<Moment> moments_;
  bool is_in_file_;
  Buffer direction_; ///< LAMB's, of its largest tensor.
  StepRule step_rule_;
  UpdateRule decaying_;
  UpdateRule free_;           ///< Of weight decay.
  std::vector<Group> groups_; ///< In the arena's order, which they fill.
  std::optional<Muon> muon_;
  Rates rates_;
  Buffer state_; ///< A StepState.
  StepState seen_;
  std::int64_t step_ = 0;
  bool is_announced_ = false;
};

} // namespace trainer
