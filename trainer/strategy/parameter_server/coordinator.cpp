#include "trainer/strategy/parameter_server/coordinator.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {

std::string Coordinator::begin(const WorkerHello& hello) {
  const RunSettings& its = hello.settings;
  WorkerHello own = expected_(std::max<std::uint64_t>(its.samples, 1));
  own.settings.data = its.data;
  own.settings.kernels = its.kernels;
  if (const std::string differs = difference(hello, own); !differs.empty()) {
    return "it trains another job than the chief: " + differs;
  }
  const auto size = static_cast<std::uint64_t>(its.batch_size);
  progress_.batches = its.epochs_end > 0
                          ? static_cast<std::int64_t>((its.epochs_end + size - 1) / size)
                          : its.steps * hello.workers;
  progress_.samples = its.samples;
  ledger_.emplace(progress_.batches, workers(), hello.policy.is_sync());
  return "";
}

void Coordinator::serve(Session& session, FrameType type) {
  if (type == FrameType::hello) {
    session.send_state({});
    return;
  }
  if (type != FrameType::next_batch) {
    unexpected_message();
  }
  const Request& report = session.request();
  const bool is_done = report.score.count > 0;
  session.send_state(
      {.batch =
           ledger_->next(session.worker(), report.step, report.generation, is_done).value_or(-1)});
  if (is_done) {
    progress_.done = ledger_->done();
    progress_.totals += report.score;
    progress_.input_seconds += report.input_seconds;
    progress_.waiting_seconds += report.waiting_seconds;
    on_progress_(progress_);
  }
}

std::string Coordinator::lose(int worker) {
  ledger_->lose(worker);
  return fmt::format("{} of {} batches are done, and what it had to do goes to the others",
                     ledger_->done(), ledger_->batches());
}

} // namespace trainer
