#include "trainer/collectives/in_process/worker_group.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/collectives/memory.h"
#include "trainer/collectives/reduce.h"
#include "trainer/errors.h"

namespace trainer {

struct WorkerGroup::State {
  State(int replicas_, Communicator& between_) : replicas(replicas_), between(between_) {}

  /// A collective under way.
  struct Shared {
    std::vector<Collective> parts; ///< A replica's each, once it has started.
    int started = 0;
    bool is_brought_together = false; ///< In replica 0's memory.
    Communicator::Ticket ticket = 0;  ///< Between the workers, once it is under way.
    bool done = false;
    int left = 0; ///< Replicas that have waited for it.
  };

  void check() const {
    if (!failure.empty()) {
      throw PeerError(failure);
    }
  }

  Shared& at(Communicator::Ticket number) {
    return shared[static_cast<std::size_t>(number - retired)];
  }

  /// Starts those that can be, in order. Not while a replica waits between the workers, which then
  /// does it itself: `between` is for one thread at a time, and a computing replica must not wait.
  void start_between() {
    for (; !is_waiting && under_way < retired + shared.size() && at(under_way).is_brought_together;
         ++under_way) {
      Shared& one = at(under_way);
      Collective collective = one.parts.front();
      collective.root /= replicas;
      collective.pieces = replicas; // So a worker's chunk consists of those of its replicas.
      one.ticket = between.start(std::move(collective));
      changed.notify_all();
    }
  }

  const int replicas;

  std::mutex mutex; ///< Guards what follows.
  std::condition_variable changed;
  Communicator& between;
  std::deque<Shared> shared; ///< From number `retired` on.
  Communicator::Ticket retired = 0;
  Communicator::Ticket under_way = 0; ///< All before it have been started between the workers.
  bool is_waiting = false;            ///< In between.wait(), without the mutex.
  std::string failure;
};

class WorkerGroup::Member final : public Communicator {
 public:
  Member(State& state, int replica) : state_(state), replica_(replica) {}

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
      return memory_.emplace_back(count).floats();
    }
    const std::lock_guard lock(state_.mutex);
    return state_.between.allocate(count);
  }

  Ticket start(Collective collective) override {
    std::unique_lock lock(state_.mutex);
    state_.check();
    if (next_ == state_.retired + state_.shared.size()) {
      state_.shared.emplace_back().parts.resize(static_cast<std::size_t>(state_.replicas));
    }
    State::Shared& one = state_.at(next_);
    one.parts[static_cast<std::size_t>(replica_)] = std::move(collective);
    if (++one.started == state_.replicas) {
      lock.unlock();
      bring_together(one); // It is not retired before.
      lock.lock();
      one.is_brought_together = true;
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

  void check() override {
    const std::lock_guard lock(state_.mutex);
    state_.check();
    state_.between.check();
  }

  void set_step(std::int64_t step) noexcept override {
    if (replica_ == 0) {
      state_.between.set_step(step);
    }
  }
  double seconds_waiting() const noexcept override { return seconds_waiting_; }

 private:
  Chunks chunks_of(const Range& range) const { return {range.count(), world_size()}; }
  Range own_chunk(const Range& range, std::size_t replica) const {
    return chunks_of(range).of(range,
                               state_.between.rank() * state_.replicas + static_cast<int>(replica));
  }

  /// Adds up what this worker's replicas bring, in replica 0's memory.
  void bring_together(const State::Shared& one) const {
    const Collective& first = one.parts.front();
    for (const Collective& part : one.parts) {
      if (part.kind != first.kind || part.range.count() != first.range.count() ||
          part.range.dtype() != first.range.dtype() || part.root != first.root) {
        throw PeerError(
            fmt::format("the replicas' collectives differ: {} and {}", first.text(), part.text()));
      }
    }
    switch (first.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::reduce_scatter:
      add_up(one);
      break;
    case Collective::Kind::all_gather:
      for (std::size_t replica = 1; replica < one.parts.size(); ++replica) {
        copy(own_chunk(one.parts[replica].range, replica), own_chunk(first.range, replica));
      }
      break;
    case Collective::Kind::broadcast:
      if (first.root / state_.replicas == state_.between.rank()) {
        const auto root = static_cast<std::size_t>(first.root % state_.replicas);
        copy(one.parts[root].range, first.range);
      }
      break;
    default: // Nothing to bring.
      break;
    }
  }

  static void add_up(const State::Shared& one) {
    if (one.parts.size() == 1) {
      return;
    }
    std::vector<const std::byte*> in;
    in.reserve(one.parts.size());
    for (const Collective& part : one.parts) {
      in.push_back(part.range.data());
    }
    const Collective& first = one.parts.front();
    std::byte* const to = first.range.data();
    sum_values(first.range.dtype(), first.wire, {&to, 1}, in, first.range.count());
  }

  /// Copies the result from replica 0's memory to the others'.
  void hand_out(const State::Shared& one) const {
    const Collective& first = one.parts.front();
    for (std::size_t replica = 1; replica < one.parts.size(); ++replica) {
      const Range& range = one.parts[replica].range;
      if (first.kind == Collective::Kind::reduce_scatter) {
        copy(own_chunk(first.range, replica), own_chunk(range, replica));
      } else {
        copy(first.range, range);
      }
    }
  }

  static void copy(const Range& from, const Range& to) {
    if (from.data() != to.data()) {
      copy_bytes(to.data(), from.data(), from.size_bytes());
    }
  }

  void finish(Ticket number, std::unique_lock<std::mutex>& lock) {
    const auto one = [&]() -> State::Shared& { return state_.at(number); };
    if (replica_ == 0) {
      await(lock, [&] { return state_.under_way > number; });
      wait_between(one().ticket, lock);
      hand_out(one());
      one().done = true;
      state_.changed.notify_all();
    } else {
      await(lock, [&] { return one().done; });
    }
    ++one().left;
    while (!state_.shared.empty() && state_.shared.front().left == state_.replicas) {
      state_.shared.pop_front();
      ++state_.retired;
    }
  }

  /// The other replicas continue meanwhile.
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
  std::list<PrivateMemory> memory_;
  Ticket next_ = 0;   ///< Number of collectives started here,
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
  const std::lock_guard lock(state_->mutex);
  if (state_->failure.empty()) {
    state_->failure = fmt::format("replica {} gave up: {}", replica, why);
  }
  state_->changed.notify_all();
}

} // namespace trainer
