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
      : replicas(replicas_), ops(ops_), published(static_cast<std::size_t>(replicas_)),
        bytes(static_cast<std::size_t>(replicas_)) {}

  struct Part {
    Collective::Kind kind;
    std::span<float> buffer;
    WireType wire;
  };

  const int replicas;
  const CrossDeviceOps ops;
  /// What each replica brings to the collectives under way; written before a meeting.
  std::vector<std::vector<Part>> published;
  std::vector<std::span<std::byte>> bytes;

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

  Ticket start(Collective::Kind kind, std::span<float> buffer, std::string_view,
               WireType wire) override {
    started_.push_back({kind, buffer, wire});
    return next_ticket_++;
  }

  void check() override { state_.check(); }

  void wait(Ticket ticket) override {
    if (ticket < done_) {
      return;
    }
    state_.published[index()] = std::move(started_);
    started_.clear();
    meet();
    for (std::size_t i = 0; i < state_.published[index()].size(); ++i) {
      gather(i);
      carry_out(state_.published[index()][i]);
    }
    meet();
    done_ = next_ticket_;
  }

  void broadcast(std::span<std::byte> bytes, int root, std::string_view) override {
    state_.bytes[index()] = bytes;
    meet();
    const auto from = state_.bytes[static_cast<std::size_t>(root)];
    if (rank_ != root) {
      std::copy_n(from.begin(), std::min(from.size(), bytes.size()), bytes.begin());
    }
    meet();
  }

  void barrier(std::string_view) override { meet(); }
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
    for (const auto& published : state_.published) {
      const State::Part& own = state_.published[index()][i];
      if (published.size() <= i || published[i].buffer.size() != own.buffer.size() ||
          published[i].wire != own.wire || published[i].kind != own.kind) {
        throw PeerError("the replicas' collectives differ");
      }
      buffers_.push_back(published[i].buffer);
    }
  }

  void carry_out(const State::Part& part) {
    const std::size_t count = part.buffer.size();
    const WireType wire = part.wire;
    if (part.kind == Collective::Kind::all_gather) {
      const Chunks chunks(count, state_.replicas);
      sum_to(buffers_, {&part.buffer, 1}, chunks.begin(rank_), chunks.size(rank_), wire);
      return;
    }
    switch (state_.ops) {
    case CrossDeviceOps::automatic:
    case CrossDeviceOps::nccl:
    case CrossDeviceOps::shares: {
      const Chunks chunks(count, state_.replicas);
      sum_to(buffers_, buffers_, chunks.begin(rank_), chunks.size(rank_), wire);
      break;
    }
    case CrossDeviceOps::reduction_to_one:
      if (rank_ == 0) {
        sum_to(std::span(buffers_).first(1), buffers_, 0, count, wire);
      }
      meet();
      if (rank_ != 0) {
        std::copy_n(buffers_[0].data(), count, buffers_[index()].data());
      }
      break;
    case CrossDeviceOps::hierarchical_copy:
      reduce_in_tree(count, wire);
      break;
    }
  }

  using Buffers = std::span<const std::span<float>>;

  /// As wire.h says of sums, in the order of `from`.
  void sum_to(Buffers to, Buffers from, std::size_t begin, std::size_t size, WireType wire) {
    const auto at_begin = [&](const std::span<float>& buffer) { return buffer.data() + begin; };
    in_.resize(from.size());
    out_.resize(to.size());
    std::transform(from.begin(), from.end(), in_.begin(), at_begin);
    std::transform(to.begin(), to.end(), out_.begin(), at_begin);
    sum_to_all(wire, out_, in_, size);
  }

  void reduce_in_tree(std::size_t count, WireType wire) {
    int distance = 1;
    for (; distance < state_.replicas; distance *= 2) {
      const int other = rank_ + distance;
      if (rank_ % (2 * distance) == 0 && other < state_.replicas) {
        const std::span<float> own = buffers_[index()];
        const std::array pair = {buffers_[static_cast<std::size_t>(other)], own};
        sum_to({&own, 1}, pair, 0, count, wire);
      }
      meet();
    }
    while ((distance /= 2) >= 1) {
      if (rank_ % (2 * distance) == distance) {
        std::copy_n(buffers_[static_cast<std::size_t>(rank_ - distance)].data(), count,
                    buffers_[index()].data());
      }
      meet();
    }
  }

  State& state_;
  int rank_;
  std::list<PrivateMemory> memory_;
  std::vector<State::Part> started_;
  std::vector<std::span<float>> buffers_;
  std::vector<const float*> in_;
  std::vector<float*> out_;
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
