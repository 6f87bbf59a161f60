// Replicas in lockstep within one process, with a thread, a model and a set of variables per
// device. Each takes its share of the global batch, and all apply the same averaged gradient, as
// the ranks of strategy/training_step.h do, over a communicator in this process' memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/collectives/in_process/in_process.h"

namespace trainer {

/// "cpu:0,cpu:1", or "gpu:0,gpu:1". Throws UsageError naming --devices for an unknown device, a
/// device given twice, or a mix of CPUs and GPUs.
std::vector<std::string> parse_devices(const std::string& text);

/// "auto", "reduction-to-one", "hierarchical-copy" or "nccl".
CrossDeviceOps parse_cross_device_ops(const std::string& text);

/// Runs `body` once per replica, each in its own thread (replica 0 in the caller's), and returns
/// when all have ended. Throws what the first replica to fail threw.
void run_replicas(int replicas, CrossDeviceOps ops, const std::function<void(Communicator&)>& body);

/// The same for one of several workers, connected by `between`, which all have as many replicas.
void run_replicas(int replicas, Communicator& between,
                  const std::function<void(Communicator&)>& body);

} // namespace trainer
