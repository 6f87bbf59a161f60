// Which of a model's state a rank has in memory, page by page, through a step of training at ZeRO's
// stages 2 and 3 (strategy/shards.h): as the model needs units and finishes gradients
// (Model::rehearse()), parameters are gathered and given back by the owner that trains
// (strategy/gathered.h), gradients as by strategy/reduced.h. Nothing is computed, and no page is
// written to.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/models/model.h"
#include "trainer/strategy/shards.h"

namespace trainer {

struct RehearsalOptions {
  int stage = 2; ///< Or 3.
  Offload offload = {};
  std::size_t rows = 0;     ///< Of a batch, forward and backward at once.
  bool accumulates = false; ///< Several of these in a step.
  bool is_rounded = false;  ///< The model computes with a copy in 16 bits, in paged memory.
  std::vector<const Tensor*> whole_tensors = {}; ///< Optimizer::whole_tensors().
};

struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t rounded = 0; ///< That copy, and what is gathered for it at stage 3.

  std::size_t all() const { return parameters + gradients + rounded; }
};

struct RehearsedStep {
  StateBytes most = {};    ///< At the moment at which they are most together.
  StateBytes at_rest = {}; ///< Between two steps.
};

/// Of the rank of `shards`, on a device with pages (Device::page_bytes()).
RehearsedStep rehearse_step(const RehearsalOptions& options, const Model& model,
                            const Shards& shards, const Device& device);

} // namespace trainer
