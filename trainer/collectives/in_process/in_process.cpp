#include "trainer/collectives/in_process/in_process.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/collectives/memory.h"
#include "trainer/collectives/reduce.h"
#include "trainer/collectives/transport.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

/// Turns of looking before a thread sleeps: replicas arrive within microseconds of each other.
constexpr int k_spins = 100;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

} // namespace

struct InProcessGroup::State {
  State(int replicas_, CrossDeviceOps ops_)
      : replicas(replicas_), ops(ops_), published(static_cast<std::size_t>(replicas_)) {}

  const int replicas;
  const CrossDeviceOps ops;
  /// What each replica brings to the collectives under way; written before a meeting.
  std::vector<std::vector<Collective>> published;

  std::atomic<int> arrived{0};
  std::atomic<std::uint32_t> phase{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string failure;

  void check() {
    if (failed) {
      const std::lock_guard lock(mutex);
      throw PeerError(failure);
    }
  }

  /// Returns when all replicas are here; what they wrote before is seen after.
  void meet() {
    // Before the check: a failure between the two has then moved the phase that is waited for.
    const std::uint32_t current = phase.load(std::memory_order_acquire);
    check();
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == replicas) {
      arrived.store(0, std::memory_order_relaxed);
      phase.fetch_add(1, std::memory_order_acq_rel);
      phase.notify_all();
      return;
    }
    for (int spin = 0; phase.load(std::memory_order_acquire) == current; ++spin) {
      if (spin < k_spins) {
        pause_core();
      } else {
        phase.wait(current, std::memory_order_acquire);
      }
    }
    check();
  }
};

class InProcessGroup::Member final : public Communicator {
 public:
  Member(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return state_.replicas; }
  std::string name(int rank) const override { return fmt::format("replica {}", rank); }
  std::string describe() const override {
    const char* how = state_.ops == CrossDeviceOps::shares             ? "each sums a share"
                      : state_.ops == CrossDeviceOps::reduction_to_one ? "reduction to one"
                                                                       : "hierarchical copy";
    return fmt::format("memory of one process, {} replicas, {}", state_.replicas, how);
  }

  Route route(std::size_t, WireType) const override { return {describe(), 0}; }

  std::span<float> allocate(std::size_t count) override {
    return memory_.emplace_back(count).floats();
  }

  Ticket start(Collective collective) override {
    started_.push_back(std::move(collective));
    return next_ticket_++;
  }

  void check() override { state_.check(); }

  /// A replica may come with more collectives started than another: as many are carried out as all
  /// have, and the others wait for the next meeting.
  void wait(Ticket ticket) override {
    while (done_ <= ticket) {
      std::vector<Collective>& mine = state_.published[index()];
      mine = started_;
      meet();
      std::size_t count = mine.size();
      for (const auto& theirs : state_.published) {
        count = std::min(count, theirs.size());
      }
      for (std::size_t i = 0; i < count; ++i) {
        gather(i);
        carry_out_one(mine[i]);
      }
      meet();
      started_.erase(started_.begin(), started_.begin() + static_cast<std::ptrdiff_t>(count));
      done_ += count;
    }
  }

  void set_step(std::int64_t) noexcept override {}
  double seconds_waiting() const noexcept override { return seconds_waiting_; }

 private:
  std::size_t index() const { return static_cast<std::size_t>(rank_); }

  void meet() {
    const double started = now();
    state_.meet();
    seconds_waiting_ += now() - started;
  }

  /// The i-th buffer of every replica.
  void gather(std::size_t i) {
    buffers_.clear();
    const Collective& own = state_.published[index()][i];
    for (const auto& published : state_.published) {
      const Collective& other = published[i];
      if (other.kind != own.kind || other.range.count() != own.range.count() ||
          other.range.dtype() != own.range.dtype() || other.wire != own.wire ||
          other.root != own.root) {
        throw PeerError(
            fmt::format("the replicas' collectives differ: {} and {}", own.text(), other.text()));
      }
      buffers_.push_back(other.range.data());
    }
  }

  void carry_out_one(const Collective& collective) {
    if (state_.replicas == 1) {
      return; // Nothing travels, so nothing is rounded either.
    }
    const std::size_t count = collective.range.count();
    const Chunks chunks(collective, state_.replicas);
    const auto root = static_cast<std::size_t>(collective.root);
    switch (collective.kind) {
    case Collective::Kind::all_reduce:
      all_reduce(collective);
      break;
    case Collective::Kind::reduce_scatter:
      // A tree's order of addition is its own; a chunk's tree is one replica's alone.
      if (state_.ops == CrossDeviceOps::hierarchical_copy) {
        reduce_chunk_in_tree(collective, chunks.begin(rank_), chunks.size(rank_));
      } else {
        sum(collective, {&buffers_[index()], 1}, buffers_, chunks.begin(rank_), chunks.size(rank_));
      }
      break;
    case Collective::Kind::all_gather:
      sum(collective, buffers_, {&buffers_[index()], 1}, chunks.begin(rank_), chunks.size(rank_));
      break;
    case Collective::Kind::broadcast:
      if (index() != root) {
        sum(collective, {&buffers_[index()], 1}, {&buffers_[root], 1}, 0, count);
      }
      break;
    default: // Nothing to carry.
      break;
    }
  }

  void all_reduce(const Collective& collective) {
    const std::size_t count = collective.range.count();
    switch (state_.ops) {
    case CrossDeviceOps::automatic:
    case CrossDeviceOps::nccl:
    case CrossDeviceOps::shares: {
      const Chunks chunks(collective, state_.replicas);
      sum(collective, buffers_, buffers_, chunks.begin(rank_), chunks.size(rank_));
      break;
    }
    case CrossDeviceOps::reduction_to_one:
      if (rank_ == 0) {
        sum(collective, {buffers_.data(), 1}, buffers_, 0, count);
      }
      meet();
      if (rank_ != 0) {
        copy_bytes(buffers_[index()], buffers_[0], collective.range.size_bytes());
      }
      break;
    case CrossDeviceOps::hierarchical_copy:
      reduce_in_tree(collective);
      break;
    }
  }

  using Buffers = std::span<std::byte* const>;

  /// As wire.h says of sums, in the order of `from`; of values [first, first + count).
  void sum(const Collective& collective, Buffers to, Buffers from, std::size_t first,
           std::size_t count) {
    const std::size_t at = first * size_of(collective.range.dtype());
    in_.clear();
    out_.clear();
    for (std::byte* const buffer : from) {
      in_.push_back(buffer + at);
    }
    for (std::byte* const buffer : to) {
      out_.push_back(buffer + at);
    }
    sum_values(collective.range.dtype(), collective.wire, out_, in_, count);
  }

  /// The other's buffer and then one's own, summed into one's own.
  void add_pair(const Collective& collective, int to, int other, std::size_t first,
                std::size_t count) {
    std::byte* const own = buffers_[static_cast<std::size_t>(to)];
    const std::array pair = {buffers_[static_cast<std::size_t>(other)], own};
    sum(collective, {&own, 1}, pair, first, count);
  }

  void reduce_in_tree(const Collective& collective) {
    int distance = 1;
    for (; distance < state_.replicas; distance *= 2) {
      const int other = rank_ + distance;
      if (rank_ % (2 * distance) == 0 && other < state_.replicas) {
        add_pair(collective, rank_, other, 0, collective.range.count());
      }
      meet();
    }
    while ((distance /= 2) >= 1) {
      if (rank_ % (2 * distance) == distance) {
        copy_bytes(buffers_[index()], buffers_[static_cast<std::size_t>(rank_ - distance)],
                   collective.range.size_bytes());
      }
      meet();
    }
  }

  /// The same tree over one chunk, in the replicas' own buffers; no other replica touches that
  /// chunk.
  void reduce_chunk_in_tree(const Collective& collective, std::size_t first, std::size_t count) {
    for (int distance = 1; distance < state_.replicas; distance *= 2) {
      for (int to = 0; to + distance < state_.replicas; to += 2 * distance) {
        add_pair(collective, to, to + distance, first, count);
      }
    }
    if (rank_ != 0) {
      const std::size_t size = size_of(collective.range.dtype());
      copy_bytes(buffers_[index()] + first * size, buffers_[0] + first * size, count * size);
    }
  }

  State& state_;
  int rank_;
  std::list<PrivateMemory> memory_;
  std::vector<Collective> started_;
  std::vector<std::byte*> buffers_; ///< Of all replicas.
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
  Ticket next_ticket_ = 0;
  Ticket done_ = 0;
  double seconds_waiting_ = 0;
};

InProcessGroup::InProcessGroup(int replicas, CrossDeviceOps ops)
    : state_(std::make_unique<State>(replicas, ops)) {
  for (int rank = 0; rank < replicas; ++rank) {
    members_.push_back(std::make_unique<Member>(*state_, rank));
  }
}

InProcessGroup::~InProcessGroup() = default;

Communicator& InProcessGroup::communicator(int replica) {
  return *members_[static_cast<std::size_t>(replica)];
}

void InProcessGroup::fail(int replica, const std::string& why) noexcept {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failed) {
    state_->failure = fmt::format("replica {} gave up: {}", replica, why);
    state_->failed = true;
    state_->phase.fetch_add(1, std::memory_order_acq_rel);
    state_->phase.notify_all();
  }
}

} // namespace trainer
