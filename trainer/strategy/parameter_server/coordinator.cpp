#include "trainer/strategy/parameter_server/coordinator.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {

std::string Coordinator::refusal(const WorkerHello& hello) {
  const RunSettings& its = hello.settings;
  WorkerHello job = agreed_ ? *agreed_ : expected_(std::max<std::uint64_t>(its.samples, 1));
  if (!agreed_) {
    job.settings.data = its.data;
    job.settings.kernels = its.kernels;
  }
  if (const std::string differs = difference(hello, job); !differs.empty()) {
    return "it trains another job than the chief: " + differs;
  }
  if (!agreed_) {
    agreed_ = job;
    const auto size = static_cast<std::uint64_t>(its.batch_size);
    progress_.batches = its.epochs_end > 0
                            ? static_cast<std::int64_t>((its.epochs_end + size - 1) / size)
                            : its.steps * hello.workers;
    progress_.samples = its.samples;
    ledger_.emplace(progress_.batches, workers_, job.policy.is_sync());
  }
  return "";
}

void Coordinator::serve(Session& session, FrameType type) {
  if (type == FrameType::hello) {
    if (!seen_.insert(session.worker()).second) {
      say(fmt::format("{} is back", session.name()));
    }
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
