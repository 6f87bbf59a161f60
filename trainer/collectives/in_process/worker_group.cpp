#include "trainer/collectives/in_process/worker_group.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/collectives/in_process/in_process.h"
#include "trainer/collectives/reduce.h"
#include "trainer/errors.h"

namespace trainer {

struct WorkerGroup::State {
  State(int replicas_, Communicator& between_)
      : replicas(replicas_), within(replicas_, CrossDeviceOps::shares), between(between_) {}

  /// A sum under way.
  struct Sum {
    std::vector<std::span<float>> parts; ///< A replica's each, once it has started.
    std::string name;
    WireType wire = WireType::fp32;
    int started = 0;
    bool added_up = false;
    Communicator::Ticket ticket = 0; ///< Between the workers, once it is under way.
    bool done = false;
    int left = 0; ///< Replicas that have waited for it.
  };

  void check() const {
    if (!failure.empty()) {
      throw PeerError(failure);
    }
  }

  Sum& at(Communicator::Ticket number) { return sums[static_cast<std::size_t>(number - retired)]; }

  /// Starts those that can be, in order. Not while a replica waits between the workers, which then
  /// does it itself: `between` is for one thread at a time, and a computing replica must not wait.
  void start_between() {
    for (; !is_waiting && under_way < retired + sums.size() && at(under_way).added_up;
         ++under_way) {
      Sum& sum = at(under_way);
      sum.ticket = between.start_all_reduce(sum.parts.front(), sum.name, sum.wire);
      changed.notify_all();
    }
  }

  const int replicas;
  InProcessGroup within;

  std::mutex mutex; ///< Guards what follows.
  std::condition_variable changed;
  Communicator& between;
  std::deque<Sum> sums; ///< From number `retired` on.
  Communicator::Ticket retired = 0;
  Communicator::Ticket under_way = 0; ///< All before it have been started between the workers.
  bool is_waiting = false;            ///< In between.wait(), without the mutex.
  std::string failure;
};

class WorkerGroup::Member final : public Communicator {
 public:
  Member(State& state, int replica)
      : state_(state), replica_(replica), within_(state.within.communicator(replica)) {}

  int rank() const noexcept override { return state_.between.rank() * state_.replicas + replica_; }
  int world_size() const noexcept override { return state_.between.world_size() * state_.replicas; }
  std::string name(int rank) const override {
    return fmt::format("replica {} of {}", rank % state_.replicas,
                       state_.between.name(rank / state_.replicas));
  }
  std::string describe() const override {
    return fmt::format("{} replicas a worker, summed in its memory; between workers {}",
                       state_.replicas, state_.between.describe());
  }

  Route route(std::size_t bytes, WireType wire) const override {
    Route between = state_.between.route(bytes, wire);
    return {"replicas in memory, then " + between.how, between.sent};
  }

  std::span<float> allocate(std::size_t count) override {
    if (replica_ != 0) {
      return within_.allocate(count);
    }
    const std::lock_guard lock(state_.mutex);
    return state_.between.allocate(count);
  }

  Ticket start(Collective::Kind kind, std::span<float> buffer, std::string_view name,
               WireType wire) override {
    if (kind == Collective::Kind::all_gather) {
      wait(next_); // So that all that was started goes first, between the workers too.
      const Collective gather{kind, std::as_writable_bytes(buffer), 0, std::string(name), wire};
      for (const Collective& part : gather_by_broadcasts(gather, rank(), world_size())) {
        broadcast(part.bytes, part.root, name);
      }
      return next_;
    }
    std::unique_lock lock(state_.mutex);
    state_.check();
    if (next_ == state_.retired + state_.sums.size()) {
      State::Sum& first = state_.sums.emplace_back();
      first.parts.resize(static_cast<std::size_t>(state_.replicas));
      first.name = name;
      first.wire = wire;
    }
    State::Sum& sum = state_.at(next_);
    sum.parts[static_cast<std::size_t>(replica_)] = buffer;
    if (++sum.started == state_.replicas) {
      lock.unlock();
      add_up(sum); // It stays where it is: nobody retires it before.
      lock.lock();
      sum.added_up = true;
      state_.start_between();
    }
    return ++next_;
  }

  void wait(Ticket ticket) override {
    const double began = now();
    std::unique_lock lock(state_.mutex);
    for (; waited_ < ticket; ++waited_) {
      finish(waited_, lock);
    }
    seconds_waiting_ += now() - began;
  }

  void broadcast(std::span<std::byte> bytes, int root, std::string_view name) override {
    const int worker = root / state_.replicas;
    if (worker == state_.between.rank()) {
      within_.broadcast(bytes, root % state_.replicas, name);
    }
    if (replica_ == 0) {
      const std::lock_guard lock(state_.mutex);
      state_.between.broadcast(bytes, worker, name);
    }
    within_.broadcast(bytes, 0, name);
  }

  void barrier(std::string_view name) override {
    within_.barrier(name);
    if (replica_ == 0) {
      const std::lock_guard lock(state_.mutex);
      state_.between.barrier(name);
    }
    within_.barrier(name);
  }

  void check() override {
    const std::lock_guard lock(state_.mutex);
    state_.check();
    if (!state_.is_waiting) { // Else that one finds out.
      state_.between.check();
    }
  }

  void set_step(std::int64_t step) noexcept override {
    if (replica_ == 0) {
      state_.between.set_step(step);
    }
  }
  double seconds_waiting() const noexcept override {
    return seconds_waiting_ + within_.seconds_waiting();
  }

 private:
  static void add_up(const State::Sum& sum) {
    const std::size_t count = sum.parts.front().size();
    std::vector<const float*> in;
    for (const std::span<float> part : sum.parts) {
      if (part.size() != count) {
        throw PeerError("the replicas' collectives differ");
      }
      in.push_back(part.data());
    }
    float* const to = sum.parts.front().data();
    sum_to_all(sum.wire, {&to, 1}, in, count);
  }

  void finish(Ticket number, std::unique_lock<std::mutex>& lock) {
    const auto sum = [&]() -> State::Sum& { return state_.at(number); };
    if (replica_ == 0) {
      await(lock, [&] { return state_.under_way > number; });
      wait_between(sum().ticket, lock);
      const std::span<float> total = sum().parts.front();
      for (std::size_t other = 1; other < sum().parts.size(); ++other) {
        copy(sum().parts[other].data(), total.data(), total.size());
      }
      sum().done = true;
      state_.changed.notify_all();
    } else {
      await(lock, [&] { return sum().done; });
    }
    ++sum().left;
    while (!state_.sums.empty() && state_.sums.front().left == state_.replicas) {
      state_.sums.pop_front();
      ++state_.retired;
    }
  }

  /// The other replicas go on meanwhile.
  void wait_between(Ticket ticket, std::unique_lock<std::mutex>& lock) {
    state_.is_waiting = true;
    lock.unlock();
    const auto lock_again = [&] {
      lock.lock();
      state_.is_waiting = false;
    };
    try {
      state_.between.wait(ticket);
    } catch (...) {
      lock_again();
      throw;
    }
    lock_again();
    state_.start_between();
  }

  template <typename Ready>
  void await(std::unique_lock<std::mutex>& lock, const Ready& ready) {
    state_.changed.wait(lock, [&] { return !state_.failure.empty() || ready(); });
    state_.check();
  }

  State& state_;
  int replica_;
  Communicator& within_;
  Ticket next_ = 0;   ///< How many sums have been started here,
  Ticket waited_ = 0; ///< and waited for. A ticket is how many to wait for.
  double seconds_waiting_ = 0;
};

WorkerGroup::WorkerGroup(int replicas, Communicator& between)
    : state_(std::make_unique<State>(replicas, between)) {
  for (int replica = 0; replica < replicas; ++replica) {
    members_.push_back(std::make_unique<Member>(*state_, replica));
  }
}

WorkerGroup::~WorkerGroup() = default;

Communicator& WorkerGroup::communicator(int replica) {
  return *members_[static_cast<std::size_t>(replica)];
}

void WorkerGroup::fail(int replica, const std::string& why) noexcept {
  state_->within.fail(replica, why);
  const std::lock_guard lock(state_->mutex);
  if (state_->failure.empty()) {
    state_->failure = fmt::format("replica {} gave up: {}", replica, why);
  }
  state_->changed.notify_all();
}

} // namespace trainer
