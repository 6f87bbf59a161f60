#include "trainer/strategy/parameter_server/server.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/random.h>

#include "trainer/strategy/parameter_server/arrivals.h"
#include "trainer/strategy/parameter_server/session.h"

namespace trainer {
namespace {

constexpr std::size_t k_snapshots_kept = 2;
constexpr double k_longest_beat_seconds = 1;
constexpr int k_beats_a_timeout = 4;

Fd open_door(const ServerOptions& options) {
  std::string why = "it has no address";
  for (const Address& address :
       resolve(options.host, options.port, after_seconds(options.rendezvous_timeout))) {
    try {
      return listen_at(address);
    } catch (const LinkError& error) {
      why = error.what();
    }
  }
  throw ClusterError(fmt::format("ps {} cannot listen at {}:{}: {}; give it a free port of its own "
                                 "in TF_CONFIG",
                                 options.index, options.host, options.port, why));
}

std::int64_t random_incarnation() {
  std::int64_t number = 0;
  if (getentropy(&number, sizeof number) != 0) {
    throw Error("getentropy: " + error_text(errno));
  }
  return number;
}

} // namespace

class ParameterServer::Impl final : public SessionOwner {
 public:
  Impl(const ServerOptions& options, const CpuKernels& kernels, Notice notice)
      : options_(options), kernels_(kernels), notice_(std::move(notice)) {
    Fd listener = open_door(options_);
    port_ = local_address(listener).port();
    arrivals_.emplace(std::move(listener), options_.token);
  }

  int port() const { return port_; }

  void stop() noexcept {
    stopped_ = true;
    arrivals_->wake();
  }

  void run() {
    gather_until_ = after_seconds(options_.rendezvous_timeout);
    next_report_ = after_seconds(options_.report_seconds);
    try {
      serve();
    } catch (const Error& error) {
      for (Session& session : sessions_) {
        guarded(session, [&] { refuse(session, error.what()); });
      }
      throw;
    }
    say_goodbye();
  }

 private:
  void serve() {
    while (!stopped_ && !is_finished()) {
      wait_and_serve();
      for (Acceptor::Arrival& arrival : arrivals_->take()) {
        tune_link(arrival.link, options_.peer_timeout);
        sessions_.emplace_back(arrival.who, std::move(arrival.link), *this).heard = Clock::now();
      }
      keep_time();
      remove_gone();
    }
  }

  static void refuse(Session& session, std::string_view why) {
    FrameHeader refused;
    refused.type = FrameType::refused;
    session.channel().send_copy(refused, std::as_bytes(std::span(why)));
  }

 public:
  // SessionOwner
  void hello(Session& session, WorkerHello hello) override;
  ShardStore& store() override { return *store_; }
  void initial(std::span<const float> values) override;
  void pushed(Session& session) override;
  void pull(Session& session) override { answer(session); }
  void rollback(Session& session, std::int64_t step, std::int64_t incarnation) override;
  void goodbye(Session& session) override {
    done_.insert(session.worker());
    session.over = true;
    advance_ = true;
  }

 private:
  bool is_finished() const {
    return !done_.empty() && !gathering_ &&
           std::none_of(sessions_.begin(), sessions_.end(), [](const Session& session) {
             return session.worker() >= 0 && !session.over;
           });
  }

  double period() const {
    return std::min(k_longest_beat_seconds, options_.peer_timeout / k_beats_a_timeout);
  }

  void wait_and_serve() {
    polled_.clear();
    polled_.push_back({arrivals_->fd(), POLLIN, 0});
    for (const Session& session : sessions_) {
      const short out = session.channel().has_unsent() ? POLLOUT : 0;
      polled_.push_back({session.channel().fd(), static_cast<short>(POLLIN | out), 0});
    }
    if (poll(polled_.data(), polled_.size(), poll_timeout(after_seconds(period()))) <= 0) {
      return;
    }
    std::size_t i = 0;
    for (Session& session : sessions_) {
      if (polled_[++i].revents != 0 && !session.over) {
        guarded(session, [&] {
          session.channel().flush();
          session.channel().receive();
          session.heard = Clock::now();
        });
      }
    }
    update();
  }

  template <typename Act>
  void guarded(Session& session, const Act& act) {
    try {
      act();
    } catch (const LinkError& error) {
      lose(session, error.what());
    }
  }

  void lose(Session& session, const std::string& why) {
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

  void remove_gone() {
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

  int active_workers() const {
    return static_cast<int>(
        std::count_if(sessions_.begin(), sessions_.end(), [](const Session& session) {
          return session.worker() >= 0 && !session.over;
        }));
  }

  std::int64_t version() const { return store_ ? store_->version() : 0; }
  void say(const std::string& text) const {
    notice_(fmt::format("ps {}: {}", options_.index, text));
  }

  void update();
  bool update_sync();
  void update_async();
  void answer(Session& session);
  void after_update();
  void add_score(const FrameHeader& push);
  FrameHeader values_header() const;
  std::int64_t slowest_clock() const;
  void end_gathering();
  std::vector<int> missing_workers() const;

  void keep_time();
  void say_goodbye();

  struct Traffic {
    std::uint64_t in = 0;
    std::uint64_t out = 0;
    std::uint64_t shared = 0;
  };
  static void add_traffic(const Session& session, Traffic& to) {
    to.in += session.channel().bytes_in();
    to.out += session.channel().bytes_out();
    to.shared += session.shared_bytes;
  }
  void report();

  ServerOptions options_;
  const CpuKernels& kernels_;
  Notice notice_;
  std::optional<Arrivals> arrivals_;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
  std::int64_t incarnation_ = random_incarnation();

  std::list<Session> sessions_;
  std::vector<pollfd> polled_;
  std::optional<WorkerHello> settings_; ///< The first worker's; all others agree.
  std::optional<ShardStore> store_;
  bool has_values_ = false;
  bool resumed_ = false; ///< From a snapshot, with no update since.
  bool gathering_ = true;
  bool advance_ = false; ///< A worker left: an update may be complete now.
  std::set<int> done_;
  std::int64_t rolled_back_for_ = 0; ///< The incarnation that the last rollback was about.
  Deadline gather_until_;
  Deadline alone_until_;
  std::string last_lost_;

  FrameHeader totals_; ///< Loss, correct, count of all pushes applied.
  std::int64_t late_ = 0;
  std::int64_t stale_most_ = 0;
  Deadline next_report_;
  Deadline next_beat_ = Clock::now();
  Traffic gone_; ///< Of sessions that are no more.
  Traffic reported_;
  std::int64_t reported_version_ = 0;
  Deadline reported_at_ = Clock::now();
};

void ParameterServer::Impl::hello(Session& session, WorkerHello hello) {
  std::string refusal;
  if (!settings_) {
    settings_ = hello;
    store_.emplace(hello.shards, hello.policy.learning_rate, kernels_);
    if (!options_.snapshot_dir.empty()) {
      resumed_ = has_values_ = store_->load(options_.snapshot_dir, job_text(hello), -1);
      if (resumed_) {
        say(fmt::format("resumes at step {} from {}", version(), options_.snapshot_dir));
      }
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
  ServerWelcome welcome{version(), incarnation_, has_values_, resumed_, session.shares_memory()};
  const std::string text = welcome_text(welcome);
  FrameHeader header;
  header.type = FrameType::welcome;
  session.channel().send_copy(header, std::as_bytes(std::span(text)));
  if (gathering_ && missing_workers().empty()) {
    end_gathering();
  } else if (!gathering_) {
    say(fmt::format("{} joined at step {}", session.name(), version()));
  }
}

void ParameterServer::Impl::initial(std::span<const float> values) {
  if (!has_values_ && values.size() == store_->parameters().size()) {
    std::copy(values.begin(), values.end(), store_->parameters().begin());
    has_values_ = true;
    advance_ = true;
  }
}

std::vector<int> ParameterServer::Impl::missing_workers() const {
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

void ParameterServer::Impl::end_gathering() {
  gathering_ = false;
  advance_ = true;
  std::size_t count = 0;
  for (const Shard& shard : store_->shards()) {
    count += shard.count();
  }
  const auto sharing = std::count_if(sessions_.begin(), sessions_.end(),
                                     [](const Session& s) { return s.shares_memory(); });
  say(fmt::format("{} workers, {} shared memory; holds {} shards, {} parameters", active_workers(),
                  sharing == 0 ? "without" : fmt::format("{} by", sharing), store_->shards().size(),
                  count));
}

void ParameterServer::Impl::pushed(Session& session) {
  session.member = true;
  session.clock = session.push()->step + 1;
  if (!settings_->policy.sync) {
    stale_most_ = std::max(stale_most_, version() - session.push()->extra);
  }
}

void ParameterServer::Impl::update() {
  if (gathering_ || !has_values_) {
    return;
  }
  if (settings_->policy.sync) {
    while (update_sync()) {
    }
  } else {
    update_async();
  }
  for (Session& session : sessions_) {
    answer(session);
  }
}

/// One update, where enough workers have pushed for it.
bool ParameterServer::Impl::update_sync() {
  std::vector<Session*> pushes;
  int members = 0;
  for (Session& session : sessions_) {
    if (session.over || !session.member) {
      continue;
    }
    ++members;
    if (session.push() && session.push()->step < version()) {
      ++late_; // A backup worker's, or of before a rollback that it has not heard of yet.
      session.drop_push();
      session.waits_for = version();
    } else if (session.push() && session.push()->step == version()) {
      pushes.push_back(&session);
    }
  }
  const int needed = std::max(1, members - settings_->policy.backup_workers);
  if (static_cast<int>(pushes.size()) < needed) {
    return false;
  }
  std::sort(pushes.begin(), pushes.end(),
            [](const Session* a, const Session* b) { return a->worker() < b->worker(); });
  std::vector<Contribution> contributions;
  for (const Session* session : pushes) {
    contributions.push_back(session->contribution(*store_));
    add_score(*session->push());
  }
  store_->apply(contributions);
  for (Session* session : pushes) {
    session->drop_push();
    session->waits_for = version();
  }
  after_update();
  return true;
}

void ParameterServer::Impl::update_async() {
  for (Session& session : sessions_) {
    if (session.push() && !session.over) {
      const Contribution one = session.contribution(*store_);
      add_score(*session.push());
      store_->apply({&one, 1});
      session.drop_push();
      session.waits_for = 0;
      after_update();
    }
  }
}

void ParameterServer::Impl::add_score(const FrameHeader& push) {
  totals_.loss += push.loss;
  totals_.correct += push.correct;
  totals_.count += push.count;
}

void ParameterServer::Impl::after_update() {
  resumed_ = false;
  const std::int64_t every = settings_->policy.snapshot_every;
  if (every > 0 && !options_.snapshot_dir.empty() && version() % every == 0) {
    store_->save(options_.snapshot_dir, job_text(*settings_), k_snapshots_kept);
  }
}

FrameHeader ParameterServer::Impl::values_header() const {
  FrameHeader header = totals_;
  header.step = version();
  return header;
}

std::int64_t ParameterServer::Impl::slowest_clock() const {
  std::int64_t slowest = -1;
  for (const Session& session : sessions_) {
    if (session.member && !session.over && (slowest < 0 || session.clock < slowest)) {
      slowest = session.clock;
    }
  }
  return std::max<std::int64_t>(slowest, 0);
}

/// Sends the values that the worker waits for, once they are there and it is not too far ahead.
void ParameterServer::Impl::answer(Session& session) {
  if (session.over || !session.waits_for || !has_values_ || *session.waits_for > version()) {
    return;
  }
  const PsPolicy& policy = settings_->policy;
  if (!policy.sync && policy.max_staleness >= 0 && session.member &&
      session.clock - slowest_clock() > policy.max_staleness) {
    return;
  }
  session.waits_for.reset();
  guarded(session, [&] { session.send_parameters(values_header(), *store_); });
}

void ParameterServer::Impl::rollback(Session& session, std::int64_t step,
                                     std::int64_t incarnation) {
  const bool goes_back = rolled_back_for_ != incarnation && step < version();
  if (goes_back) {
    if (options_.snapshot_dir.empty() ||
        !store_->load(options_.snapshot_dir, job_text(*settings_), step)) {
      refuse(session,
             fmt::format("ps {} has no snapshot of step {}, to which another server came back",
                         options_.index, step));
      return;
    }
    say(fmt::format("rolled back to step {}, to which another server came back", step));
    rolled_back_for_ = incarnation;
    for (Session& one : sessions_) {
      one.drop_push();
      one.waits_for.reset();
    }
  }
  for (Session& one : sessions_) {
    if (one.worker() >= 0 && !one.over && (&one == &session || goes_back)) {
      FrameHeader header;
      header.type = FrameType::rolled_back;
      header.step = version();
      header.extra = incarnation;
      guarded(one, [&] { one.channel().send(header); });
    }
  }
}

void ParameterServer::Impl::keep_time() {
  const Deadline now = Clock::now();
  if (gathering_ && now >= gather_until_) {
    const std::string refusals = arrivals_->refusals();
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
  if (now >= next_beat_) {
    next_beat_ = after_seconds(period());
    for (Session& session : sessions_) {
      const double silent = -seconds_until(session.heard);
      if (!session.over && silent > options_.peer_timeout) {
        lose(session, fmt::format("silent for {:.0f} s", silent));
      } else if (!session.over && session.worker() >= 0 && !session.channel().has_unsent()) {
        guarded(session, [&] { session.channel().send({}); });
      }
    }
  }
  if (now >= next_report_) {
    next_report_ = after_seconds(options_.report_seconds);
    report();
  }
}

void ParameterServer::Impl::report() {
  Traffic all = gone_;
  for (const Session& session : sessions_) {
    add_traffic(session, all);
  }
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
void ParameterServer::Impl::say_goodbye() {
  report();
  for (Session& session : sessions_) {
    guarded(session, [&] { session.channel().flush(); });
  }
}

ParameterServer::ParameterServer(const ServerOptions& options, const CpuKernels& kernels,
                                 Notice notice)
    : impl_(std::make_unique<Impl>(options, kernels, std::move(notice))) {}
ParameterServer::~ParameterServer() = default;
int ParameterServer::port() const { return impl_->port(); }
void ParameterServer::run() { impl_->run(); }
void ParameterServer::stop() noexcept { impl_->stop(); }

} // namespace trainer
