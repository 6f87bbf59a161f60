#include "trainer/strategy/parameter_server/server.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/checkpoint/numbered_files.h"

namespace trainer {
ParameterServer::ParameterServer(const ServerOptions& options, Device& device, Notice notice)
    : options_(options), device_(device), notice_(std::move(notice)),
      peers_({options_.host, options_.port}, fmt::format("ps {}", options_.index), options_.token,
             LinkPurpose::parameter_server, options_.peer_timeout, options_.rendezvous_timeout,
             [this](Session& session, const std::string& why) { lose(session, why); }) {}

void ParameterServer::run() {
  gather_until_ = after_seconds(options_.rendezvous_timeout);
  next_report_ = after_seconds(options_.report_seconds);
  try {
    serve();
  } catch (const Error& error) {
    for (Session& session : sessions_) {
      peers_.guarded(session, [&] { refuse(session, error.what()); });
    }
    throw;
  }
  say_goodbye();
}

void ParameterServer::serve() {
  while (!stopped_ && !is_finished()) {
    if (peers_.serve()) {
      update();
    }
    peers_.let_in(*this);
    keep_time();
    remove_gone();
  }
}

void ParameterServer::refuse(Session& session, std::string_view why) {
  session.channel.send(FrameType::refused, std::as_bytes(std::span(why)));
}

bool ParameterServer::is_finished() const {
  return !done_.empty() && !gathering_ &&
         std::none_of(sessions_.begin(), sessions_.end(), [](const Session& session) {
           return session.worker() >= 0 && !session.over;
         });
}

void ParameterServer::lose(Session& session, const std::string& why) {
  if (session.over) {
    return;
  }
  session.over = true;
  advance_ = true;
  if (session.worker() < 0) {
    return;
  }
  last_lost_ = fmt::format("{} at step {}: {}", session.name(), version(), why);
  alone_until_ = after_seconds(options_.rendezvous_timeout);
  say(fmt::format("lost {}; {} of {} workers left", last_lost_, active_workers(),
                  settings_->workers));
}

void ParameterServer::remove_gone() {
  for (const Session& session : sessions_) {
    if (session.over) {
      add_traffic(session, gone_);
    }
  }
  sessions_.remove_if([](const Session& session) { return session.over; });
  if (std::exchange(advance_, false)) {
    update();
  }
}

void ParameterServer::hello(Session& session, WorkerHello hello) {
  std::string refusal;
  if (!settings_) {
    settings_ = hello;
    store_.emplace(hello.ranges, hello.policy.learning_rate, device_);
    if (!options_.snapshot_dir.empty()) {
      remove_unfinished(options_.snapshot_dir);
      snapshots_ = ShardStore::snapshots(options_.snapshot_dir);
    }
  } else if (const auto differs = difference(*settings_, hello)) {
    refusal = fmt::format("it trains another job than worker {}: {}", settings_->worker, *differs);
  }
  for (Session& other : sessions_) {
    if (refusal.empty() && &other != &session && !other.over && other.worker() == hello.worker) {
      refusal = fmt::format("worker {} is there already", hello.worker);
    }
  }
  if (!refusal.empty()) {
    refuse(session, refusal);
    throw LinkError(refusal);
  }
  session.accept(std::move(hello), *store_);
  session.clock = slowest_clock();
  session.member = gathering_;
  welcome(session);
  if (gathering_ && missing_workers().empty()) {
    end_gathering();
  } else if (!gathering_) {
    say(fmt::format("{} joined at step {}", session.name(), version()));
  }
}

void ParameterServer::welcome(Session& session) {
  const ServerWelcome text{version(), generation_, version() > began_at_, snapshots_,
                           session.shares_memory()};
  session.channel.send(FrameType::welcome, bytes_of_text(welcome_text(text)));
}

std::vector<int> ParameterServer::missing_workers() const {
  std::vector<int> missing;
  for (int worker = 0; settings_ && worker < settings_->workers; ++worker) {
    const bool is_here =
        std::any_of(sessions_.begin(), sessions_.end(), [&](const Session& session) {
          return session.worker() == worker && !session.over;
        });
    if (!is_here && !done_.contains(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

void ParameterServer::end_gathering() {
  gathering_ = false;
  advance_ = true;
  const auto sharing = std::count_if(sessions_.begin(), sessions_.end(),
                                     [](const Session& s) { return s.shares_memory(); });
  say(fmt::format("{} workers, {} shared memory; holds {} shards, {} parameters", active_workers(),
                  sharing == 0 ? "without" : fmt::format("{} by", sharing), store_->ranges().size(),
                  store_->parameters().size()));
}

void ParameterServer::keep_time() {
  const Deadline now = Clock::now();
  if (gathering_ && now >= gather_until_) {
    const std::string refusals = peers_.refusals();
    const std::string who =
        settings_ ? fmt::format("workers {} of {}", fmt::join(missing_workers(), ", "),
                                settings_->workers)
                  : std::string("all workers");
    const std::string text =
        fmt::format("waited {:g} s: {} did not come{}{}", options_.rendezvous_timeout, who,
                    refusals.empty() ? "" : "; ", refusals);
    if (!resumed_ || active_workers() == 0) {
      throw PeerError(fmt::format("ps {} {}", options_.index, text));
    }
    say(text + "; goes on without them");
    end_gathering();
  }
  if (!gathering_ && active_workers() == 0 && done_.empty() && now >= alone_until_) {
    throw PeerError(fmt::format("ps {} waited {:g} s with no worker left; the last was {}",
                                options_.index, options_.rendezvous_timeout, last_lost_));
  }
  peers_.beat([](const Session& session) { return session.worker() >= 0; });
  if (now >= next_report_) {
    next_report_ = after_seconds(options_.report_seconds);
    report();
  }
}

ParameterServer::Traffic ParameterServer::traffic() const {
  Traffic all = gone_;
  for (const Session& session : sessions_) {
    add_traffic(session, all);
  }
  return all;
}

void ParameterServer::report() {
  const Traffic all = traffic();
  const double seconds = -seconds_until(reported_at_);
  if (version() == reported_version_ || seconds <= 0) {
    return;
  }
  const auto rate = [&](std::uint64_t now, std::uint64_t before) {
    return static_cast<double>(now - before) / seconds / 1e6;
  };
  std::string extras;
  if (late_ > 0) {
    extras += fmt::format(", {} late pushes dropped", late_);
  }
  if (settings_ && !settings_->policy.sync) {
    extras += fmt::format(", staleness at most {}", stale_most_);
  }
  say(fmt::format("step {}, {:.0f} updates/s, {:.1f} MB/s in, {:.1f} MB/s out, {:.1f} MB/s through "
                  "shared memory, {} workers{}",
                  version(), static_cast<double>(version() - reported_version_) / seconds,
                  rate(all.in, reported_.in), rate(all.out, reported_.out),
                  rate(all.shared, reported_.shared), active_workers(), extras));
  reported_ = all;
  reported_version_ = version();
  reported_at_ = Clock::now();
}

/// The last values and refusals go out before the connections close.
void ParameterServer::say_goodbye() {
  report();
  const Traffic all = traffic();
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  say(fmt::format("ends at step {}: {:.2f} MB in, {:.2f} MB out, {:.2f} MB through shared memory",
                  version(), megabytes(all.in), megabytes(all.out), megabytes(all.shared)));
  for (Session& session : sessions_) {
    peers_.guarded(session, [&] { session.channel.flush(); });
  }
}

} // namespace trainer
