// What a run is made of: the arenas, the model over them and its optimizer, alike on every rank, or
// shared out over them (strategy/shards.h).
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/data/synthetic_text.h"
#include "trainer/errors.h"
#include "trainer/models/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/precision.h"
#include "trainer/strategy/replicated.h"
#include "trainer/strategy/shards.h"

namespace trainer {

/// The model that was asked for, for images, or words, as the data set's. Throws UsageError where
/// it learns from the other.
inline ModelOptions fitted(ModelOptions model, const Dataset& data) {
  const SampleKind& kind = data.train.source->kind();
  model.height = kind.height;
  model.width = kind.width;
  model.classes = data.classes;
  if (kind.is_text()) {
    if (!model.is_of_text()) {
      throw UsageError("--model=" + model.name + ": trains on images, and " + data.folder +
                       " is text; use --model=bert or gpt2");
    }
    // Weights to begin with may have more rows than there are tokens, as padding.
    model.transformer.vocabulary = std::max(model.transformer.vocabulary, kind.vocabulary);
  } else {
    model.transformer.vocabulary = 0;
  }
  return model;
}

/// `count` random samples that it can learn from, for benchmarks.
inline Dataset synthetic_for(const ModelOptions& model, std::size_t count, std::uint64_t seed) {
  constexpr std::size_t k_words = 30'522; // BERT's own.
  return model.is_of_text()
             ? synthetic_text(count, model.transformer.max_length, k_words, seed, model.is_causal())
             : synthetic_dataset(count, seed, model.classes);
}

/// How its products are computed from here on. Throws UsageError naming --matmul-precision if it
/// has none of that precision.
void set_matmul_precision(Device& device, MatmulPrecision precision);

/// Of Replica::factors, for a model that takes them.
std::size_t factors_size(const Model& model);

struct Replica {
  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_, Communicator& communicator);

  /// Without gradients: attach() has to follow.
  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_);

  /// Of which the communicator's ranks share what ZeRO's stage says; at stage 0, and with one rank
  /// whose parameters are not offloaded, each has all. A collective; attach() has to follow, with
  /// the same communicator.
  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_, Communicator& communicator, const Sharding& sharding,
          const Offload& offload = {});

  /// Which parameter servers update: no optimizer's moments, and no memory of its own. place() has
  /// to follow.
  Replica(const ModelOptions& model_options, Device& device_);
  /// Its parameters and gradients are these of the host's, which outlive it, or on another device
  /// as many there.
  void place(std::span<float> parameters_, std::span<float> gradients_);

  /// Collective. Gradients in the communicator's memory, for as long as it lives, with `more`
  /// registered floats.
  void attach(Communicator& communicator, std::size_t more = 0);

  /// From the next attach() on the model computes with parameters of this precision.
  void compute_in(Precision precision_);
  /// Whether there is a rounded copy of the parameters, and gradients are rounded before they are
  /// added up: a GPU rounds what it multiplies, as it does.
  bool rounds() const { return precision != Precision::fp32 && device.is_host(); }
  /// Weights of the seed; of those that ranks share, a GPU gets its own alone.
  void initialize(std::uint64_t seed) const;

  /// Of its parameters as they are, for passes of the model, in which the communicator's ranks take
  /// part where they share them. It and what attach() was given outlive it, and `updated`: where
  /// some of the parameters are still being updated.
  std::unique_ptr<Replicated> make_owner(Communicator& communicator,
                                         UpdatedBuckets* updated = nullptr) const;

  /// Of a replica that ranks share: the parameters that this rank has to stay.
  OwnChunks own_chunks() const {
    ValueFile* const file = optimizer.parameter_file();
    return file != nullptr ? OwnChunks{{.file = file}, device.is_host()}
           : own_memory.size() > 0
               ? OwnChunks{{.memory = own_memory.span(),
                            .halves =
                                own_halves.size() > 0 ? TypedPointer(own_halves) : TypedPointer()},
                           false}
               : OwnChunks{{parameters}, true};
  }
  /// The tensor with the largest parameter that this rank has, TensorTable::suspect(). Waits for
  /// the device.
  std::string suspect() const;

  /// Of a replica that ranks share: how.
  Shards shards(const Communicator& communicator) const {
    return {parameters.size(), sharding.buckets, communicator.rank(), communicator.world_size()};
  }

  Device& device;
  std::unique_ptr<Model> model;
  Sharding sharding;           ///< Its stage is 0 where this rank has all.
  std::vector<ArenaRange> own; ///< What its optimizer updates; empty: all.
  Buffer memory;               ///< What parameters lie in that are not in the communicator's.
  std::span<float> parameters; ///< At stage 3 only what own_chunks() says is there to stay.
  Buffer own_memory;           ///< Its own chunks in pinned memory; empty: `parameters` has them.
  Buffer own_halves;           ///< The same in 16 bits, where these are gathered.
  Buffer gradient_memory;      ///< What gradients lie in, likewise.
  std::span<float> gradients;
  std::span<float> registered; ///< Those that attach() was asked for besides, of the host's; right
                               ///< behind the gradients where these are registered there too.
  Precision precision = Precision::fp32;
  Buffer rounded; ///< As Arenas has it.
  Buffer halves;  ///< Likewise.
  Buffer factors; ///< Likewise; the optimizer writes them, but where others update, too (ZeRO).
  Optimizer optimizer;

 private:
  /// Whether products take a copy of the weights in bf16.
  bool takes_factors() const {
    return precision == Precision::bf16 && device.activation_type() == DType::bf16 &&
           model->takes_rounded();
  }
  Bf16Value* factors_at() const {
    const Buffer& of = sharding.stage == 3 ? halves : factors;
    return takes_factors() && of.size() > 0 ? static_cast<Bf16Value*>(of.memory()) : nullptr;
  }
  void make_halves(Communicator& communicator);

  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_, Communicator* communicator, const Sharding& sharding_,
          const Offload& offload);
};

} // namespace trainer
