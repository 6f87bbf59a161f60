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
    ledger_.emplace(its.epochs_end > 0
                        ? static_cast<std::int64_t>((its.epochs_end + size - 1) / size)
                        : its.steps * hello.workers,
                    workers(), job.policy.is_sync());
    progress_.samples = its.samples;
    progress_.batches = ledger_->batches();
  }
  return "";
}

void Coordinator::joined(Session& session) {
  if (!seen_.insert(session.worker()).second) {
    say(fmt::format("{} is back", session.name()));
  }
  welcome(session);
}

void Coordinator::ask(Session& session, const WorkReport& report) {
  const std::int64_t batch =
      ledger_->next(session.worker(), report.version, report.generation, report.score.count > 0)
          .value_or(-1);
  session.channel.send(FrameType::work, bytes_of(batch));
  if (report.score.count > 0) {
    progress_.done = ledger_->done();
    progress_.totals += report.score;
    progress_.input_seconds += report.input_seconds;
    progress_.waiting_seconds += report.waiting_seconds;
    on_progress_(progress_);
  }
}

std::string Coordinator::lost(const Session& session) {
  ledger_->lose(session.worker());
  return ledger_->is_finished() ? "" : "what it had to do goes to the others";
}

std::string Coordinator::progress() const {
  return fmt::format(" and {} of {} batches done", ledger_->done(), ledger_->batches());
}

} // namespace trainer
