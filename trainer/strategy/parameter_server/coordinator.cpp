#include "trainer/strategy/parameter_server/coordinator.h"

#include "submit/options/json_number.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

Coordinator::Coordinator(CoordinatorOptions options, Notice notice, OnProgress on_progress)
    : options_(std::move(options)), notice_(std::move(notice)),
      on_progress_(std::move(on_progress)),
      peers_(options_.address, "the chief", options_.token, LinkPurpose::coordinator,
             options_.peer_timeout, options_.rendezvous_timeout,
             [this](Worker& worker, const std::string& why) { lose(worker, why); }) {}

void Coordinator::run() {
  alone_until_ = after_seconds(options_.rendezvous_timeout);
  while (!stopped_ && !is_finished()) {
    peers_.serve();
    peers_.let_in(*this);
    keep_time();
    workers_.remove_if([](const Worker& worker) { return worker.over; });
  }
}

ReadParts Coordinator::Worker::body_of(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.what);
  if (type == FrameType::hello && !greeted) {
    return room_for(header, text);
  }
  if (type == FrameType::ask && greeted) {
    return {writable_bytes_of(report)};
  }
  if (type != FrameType::beat && type != FrameType::goodbye) {
    not_due();
  }
  return {};
}

void Coordinator::Worker::handle(const FrameHeader& header) {
  switch (static_cast<FrameType>(header.what)) {
  case FrameType::hello:
    owner.greet(*this);
    break;
  case FrameType::ask:
    owner.answer(*this);
    break;
  case FrameType::goodbye:
    owner.leave(*this);
    break;
  default:
    break; // A beat says no more than that it came.
  }
}

void Coordinator::greet(Worker& worker) {
  std::string refusal;
  std::int64_t samples = 0;
  try {
    const nlohmann::json all = nlohmann::json::parse(worker.text.begin(), worker.text.end());
    samples = dtrain::whole_number<std::int64_t>(all.at("samples"));
    if (const auto differs = first_difference(all.at("job"), options_.job)) {
      refusal = "it trains another job than the chief: " + *differs;
    }
  } catch (const nlohmann::json::exception&) {
    throw LinkError("its hello cannot be read");
  }
  if (worker.who.rank < 0 || worker.who.rank >= options_.workers) {
    refusal = fmt::format("this job has {} workers", options_.workers);
  } else if (samples < 1 || (ledger_ && samples != progress_.samples)) {
    refusal = fmt::format("it has {} samples where others have {}", samples, progress_.samples);
  }
  for (const Worker& other : workers_) {
    if (&other != &worker && other.greeted && !other.over && other.who.rank == worker.who.rank) {
      refusal = fmt::format("worker {} is there already", worker.who.rank);
    }
  }
  if (!refusal.empty()) {
    worker.channel.send(FrameType::refused, bytes_of_text(refusal));
    throw LinkError(refusal);
  }
  if (!ledger_) {
    ledger_.emplace(options_.batches(samples), options_.workers, options_.sync);
    progress_.samples = samples;
    progress_.batches = ledger_->batches();
  }
  worker.greeted = true;
  if (!seen_.insert(worker.who.rank).second) {
    say(fmt::format("{} is back", worker.name()));
  }
  worker.channel.send(FrameType::welcome);
}

void Coordinator::answer(Worker& worker) {
  const WorkReport& report = worker.report;
  const std::int64_t batch =
      ledger_->next(worker.who.rank, report.version, report.generation, report.count > 0)
          .value_or(-1);
  worker.channel.send(FrameType::work, bytes_of(batch));
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

void Coordinator::leave(Worker& worker) {
  if (worker.greeted) {
    ledger_->lose(worker.who.rank);
  }
  worker.over = true;
}

void Coordinator::lose(Worker& worker, const std::string& why) {
  if (worker.over) {
    return;
  }
  worker.over = true;
  if (!worker.greeted) {
    return;
  }
  ledger_->lose(worker.who.rank);
  alone_until_ = after_seconds(options_.rendezvous_timeout);
  last_lost_ = fmt::format("{}: {}", worker.name(), why);
  if (!ledger_->is_finished()) {
    say(fmt::format("lost {}; what it had to do goes to the others", last_lost_));
  }
}

std::vector<int> Coordinator::missing_workers() const {
  std::vector<int> missing;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!seen_.contains(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

void Coordinator::keep_time() {
  const Deadline now = Clock::now();
  if (workers_.empty() && !is_finished() && now >= alone_until_) {
    if (!ledger_) {
      const std::string refusals = peers_.refusals();
      throw PeerError(fmt::format("the chief waited {:g} s: workers {} did not come{}{}",
                                  options_.rendezvous_timeout, fmt::join(missing_workers(), ", "),
                                  refusals.empty() ? "" : "; ", refusals));
    }
    throw PeerError(fmt::format("the chief waited {:g} s with no worker left and {} of {} batches "
                                "done; the last was {}",
                                options_.rendezvous_timeout, ledger_->done(), ledger_->batches(),
                                last_lost_));
  }
  peers_.beat([](const Worker&) { return false; });
}

} // namespace trainer
