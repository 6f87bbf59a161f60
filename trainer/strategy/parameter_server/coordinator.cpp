#include "trainer/strategy/parameter_server/coordinator.h"

#include <fmt/format.h>

#include "submit/options/json_number.h"

namespace trainer {

std::string Coordinator::refusal(const WorkerHello& hello) {
  if (hello.workers != options_.workers) {
    return fmt::format("this job has {} workers", options_.workers);
  }
  nlohmann::json job = hello.job;
  std::int64_t samples = 0;
  try {
    samples = dtrain::whole_number<std::int64_t>(job.at("samples"));
    job.erase("samples");
  } catch (const nlohmann::json::exception&) {
    throw LinkError("its hello cannot be read");
  }
  if (const auto differs = first_difference(job, options_.job)) {
    return "it trains another job than the chief: " + *differs;
  }
  if (samples < 1 || (ledger_ && samples != progress_.samples)) {
    return fmt::format("it has {} samples where others have {}", samples, progress_.samples);
  }
  if (!ledger_) {
    ledger_.emplace(options_.batches(samples), options_.workers, options_.sync);
    progress_.samples = samples;
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
      ledger_->next(session.worker(), report.version, report.generation, report.count > 0)
          .value_or(-1);
  session.channel.send(FrameType::work, bytes_of(batch));
  if (report.count > 0) {
    progress_.done = ledger_->done();
    progress_.totals.loss += report.loss;
    progress_.totals.correct += report.correct;
    progress_.totals.count += report.count;
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
