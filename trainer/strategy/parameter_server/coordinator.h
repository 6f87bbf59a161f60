// The coordinator of a job with parameter servers: TF_CONFIG's chief. It does not train and holds
// no values; it hands out the batches (see work_ledger.h), and knows how far the job is. What a
// lost worker had goes to another. A job does not survive its coordinator.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trainer/device/cpu/kernels.h"
#include "trainer/strategy/parameter_server/service.h"
#include "trainer/strategy/parameter_server/work_ledger.h"

namespace trainer {

/// How far a job is, after each report of a worker.
struct CoordinatorProgress {
  std::int64_t done = 0;     ///< Batches.
  std::int64_t batches = 0;  ///< Of the run.
  std::uint64_t samples = 0; ///< In an epoch.
  Score totals;              ///< Since this coordinator started.
  double input_seconds = 0;  ///< Of all workers.
  double waiting_seconds = 0;
};

class Coordinator final : public WorkerService {
 public:
  using OnProgress = std::function<void(const CoordinatorProgress&)>;

  /// The settings that each worker must have; the number of samples is taken from the first worker.
  using Expected = std::function<WorkerHello(std::uint64_t samples)>;

  /// Listens; port 0: any free one. Throws ClusterError when the address cannot be had.
  Coordinator(const PsJob& job, const TaskAddress& address, Expected expected, const Notice& notice,
              OnProgress on_progress)
      : WorkerService(job, address, "chief", LinkPurpose::coordinator, notice),
        expected_(std::move(expected)), on_progress_(std::move(on_progress)) {}

 private:
  bool is_finished() const override {
    return ledger_ && ledger_->is_finished() && sessions_.empty();
  }
  std::string begin(const WorkerHello& hello) override;
  void serve(Session& session, FrameType type) override;
  std::string lose(int worker) override;

  Expected expected_;
  OnProgress on_progress_;
  std::optional<WorkLedger> ledger_; ///< Empty until the first worker connects.
  CoordinatorProgress progress_;
};

} // namespace trainer
