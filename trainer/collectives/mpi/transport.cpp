#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "trainer/collectives/memory.h"
#include "trainer/collectives/mpi/mpi.h"
#include "trainer/collectives/reduce.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_at_once = std::size_t{1} << 30; ///< Bytes: MPI counts in int.

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::unique_ptr<Mpi> mpi, Health& health) : mpi_(std::move(mpi)), health_(health) {}

  ~MpiTransport() override {
    if (!under_way_.empty()) {
      mpi_->give_up();
    }
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string describe() const override { return mpi_->library(); }

  Route route(std::size_t, WireType) const override {
    return {"MPI_Ialltoallv, summed, MPI_Iallgatherv", -1};
  }

  std::span<float> allocate(std::size_t count) override {
    return memory_.emplace_back(count).floats();
  }

  std::uint64_t start(Collective collective) override {
    move_on();
    Operation& operation = under_way_.emplace_back();
    operation.collective = std::move(collective);
    operation.what = operation.collective.text();
    operation.values = operation.collective.range;
    switch (operation.collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::reduce_scatter:
      narrow(operation, {{0, operation.values.count()}});
      exchange(operation);
      break;
    case Collective::Kind::all_gather:
      narrow(operation, own_parts(operation));
      gather(operation, false);
      break;
    case Collective::Kind::broadcast:
      for (std::size_t first = 0; first < operation.values.size_bytes(); first += k_most_at_once) {
        begin(operation, [&](void** request) {
          return mpi_->table().broadcast(
              operation.values.data() + first,
              std::min(k_most_at_once, operation.values.size_bytes() - first),
              operation.collective.root, request);
        });
      }
      break;
    default: // Nothing to carry.
      begin(operation, [&](void** request) { return mpi_->table().barrier(request); });
      break;
    }
    return started_++;
  }

  void finish(std::uint64_t number) override {
    Deadline next_check = after_seconds(k_check_seconds);
    while (started_ - under_way_.size() <= number) {
      if (move_on()) {
        continue;
      }
      if (Clock::now() >= next_check) {
        health_.check();
        next_check = after_seconds(k_check_seconds);
      }
      sched_yield(); // There may be more ranks than cores.
    }
  }

 private:
  /// The part of a range that is exchanged at once. This rank adds up its own part of it; the other
  /// ranks' copies of that part lie in the room.
  struct Window {
    Chunks::Part all;
    Chunks::Part own;
    std::size_t room = 0; ///< Offset of rank 0's copy, in bytes.
  };

  struct Operation {
    Collective collective;
    std::string what;
    std::vector<void*> requests;      ///< Not finished yet.
    Range values;                     ///< The values that MPI carries: the range, or
    std::vector<std::byte> halves;    ///< the range rounded to 16 bits.
    std::vector<Window> windows = {}; ///< Windows of a sum not added up yet,
    std::vector<std::byte> room = {}; ///< and what arrives from the other ranks.
  };

  int ranks() const { return mpi_->world_size(); }
  Chunks chunks_of(const Operation& operation) const { return {operation.collective, ranks()}; }
  std::vector<Chunks::Part> own_parts(const Operation& operation) const {
    return chunks_of(operation).owned_by(mpi_->rank());
  }

  template <typename Begin>
  void begin(Operation& operation, const Begin& begin_one) {
    void* request = nullptr;
    mpi_->check(begin_one(&request), operation.what);
    operation.requests.push_back(request);
  }

  std::vector<std::byte> take(std::size_t bytes) {
    std::vector<std::byte> memory;
    if (!spare_.empty()) {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
    memory.resize(bytes);
    return memory;
  }

  /// Rounds that much of it to 16 bits, if it travels as such.
  void narrow(Operation& operation, const std::vector<Chunks::Part>& parts) {
    const WireType wire = operation.collective.wire;
    if (wire == WireType::fp32) {
      return;
    }
    const Range& range = operation.collective.range;
    operation.halves = take(range.count() * wire_size(wire));
    operation.values = {operation.halves.data(), range.count(), dtype_of(wire)};
    auto* const halves = reinterpret_cast<std::uint16_t*>(operation.halves.data());
    for (const Chunks::Part& part : parts) {
      wire_kernels(wire).narrow(halves + part.first,
                                reinterpret_cast<const float*>(range.data()) + part.first,
                                part.count);
    }
  }

  /// The part of `part` within the window; its offset in the window, in bytes.
  struct Cut {
    int place;
    int bytes;
  };
  static Cut cut(const Window& window, const Chunks::Part& part, std::size_t size) {
    const std::size_t first = std::max(part.first, window.all.first);
    const std::size_t last = std::min(part.first + part.count, window.all.first + window.all.count);
    return first >= last ? Cut{0, 0}
                         : Cut{static_cast<int>((first - window.all.first) * size),
                               static_cast<int>((last - first) * size)};
  }

  std::vector<Window> windows_of(const Operation& operation) const {
    const Range& values = operation.values;
    const std::size_t size = size_of(values.dtype());
    // Windows of a longer range serve fewer ranks, so that MPI's counts do not overflow.
    const std::size_t most =
        values.size_bytes() <= k_most_at_once
            ? k_most_at_once / size
            : std::max<std::size_t>(1, k_most_at_once / size / static_cast<std::size_t>(ranks()));
    std::vector<Window> windows;
    for (std::size_t first = 0; first < values.count(); first += most) {
      windows.push_back({{first, std::min(most, values.count() - first)}, {}, 0});
    }
    return windows;
  }

  /// Every rank's own chunk of this rank's values goes there, and theirs of its own come.
  void exchange(Operation& operation) {
    const Chunks chunks = chunks_of(operation);
    const Range& values = operation.values;
    const std::size_t size = size_of(values.dtype());
    const auto n = static_cast<std::size_t>(ranks());
    operation.windows = windows_of(operation);
    std::size_t room = 0;
    for (Window& window : operation.windows) {
      const Cut own = cut(window, {chunks.begin(mpi_->rank()), chunks.size(mpi_->rank())}, size);
      window.own = {window.all.first + static_cast<std::size_t>(own.place) / size,
                    static_cast<std::size_t>(own.bytes) / size};
      window.room = room;
      room += n * static_cast<std::size_t>(own.bytes);
    }
    operation.room = take(room);
    std::vector<int> counts(n);
    std::vector<int> places(n);
    std::vector<int> own_counts(n);
    std::vector<int> own_places(n);
    for (const Window& window : operation.windows) {
      const auto own = static_cast<int>(window.own.count * size);
      for (int rank = 0; rank < ranks(); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        const Cut theirs = cut(window, {chunks.begin(rank), chunks.size(rank)}, size);
        const bool is_self = rank == mpi_->rank(); // Its own part stays in place.
        counts[at] = is_self ? 0 : theirs.bytes;
        places[at] = theirs.place;
        own_counts[at] = is_self ? 0 : own;
        own_places[at] = rank * own;
      }
      begin(operation, [&](void** request) {
        return mpi_->table().all_to_all(values.data() + window.all.first * size, counts.data(),
                                        places.data(), operation.room.data() + window.room,
                                        own_counts.data(), own_places.data(), request);
      });
    }
  }

  void gather(Operation& operation, bool is_second) {
    const Chunks chunks = chunks_of(operation);
    const Range& values = operation.values;
    const std::size_t size = size_of(values.dtype());
    std::vector<int> counts(static_cast<std::size_t>(ranks()));
    std::vector<int> places(counts.size());
    for (const Window& window : windows_of(operation)) {
      for (int rank = 0; rank < ranks(); ++rank) {
        const Cut theirs = cut(window, {chunks.begin(rank), chunks.size(rank)}, size);
        counts[static_cast<std::size_t>(rank)] = theirs.bytes;
        places[static_cast<std::size_t>(rank)] = theirs.place;
      }
      begin(operation, [&](void** request) {
        return mpi_->table().all_gather(values.data() + window.all.first * size, counts.data(),
                                        places.data(), is_second ? 1 : 0, request);
      });
    }
  }

  /// Adds up this rank's own chunk, once the other ranks' copies have arrived.
  void add_up(Operation& operation) {
    const Range& values = operation.values;
    const std::size_t size = size_of(values.dtype());
    std::vector<const std::byte*> in(static_cast<std::size_t>(ranks()));
    for (const Window& window : operation.windows) {
      std::byte* const own = values.part(window.own.first, window.own.count).data();
      for (std::size_t k = 0; k < in.size(); ++k) {
        const std::size_t rank = (static_cast<std::size_t>(mpi_->rank()) + 1 + k) % in.size();
        in[k] = rank == static_cast<std::size_t>(mpi_->rank())
                    ? own
                    : operation.room.data() + window.room + rank * window.own.count * size;
      }
      if (operation.halves.empty()) {
        sum_values(values.dtype(), WireType::fp32, {&own, 1}, in, window.own.count);
      } else {
        sum_rounded(wire_kernels(operation.collective.wire), own, in, window.own.count);
      }
    }
    operation.windows.clear();
    spare_.push_back(std::move(operation.room));
  }

  /// Adds up float32 values that arrived as 16 bits: sums in float32, and rounds once.
  static void sum_rounded(const WireKernels& kernels, std::byte* to,
                          const std::vector<const std::byte*>& in, std::size_t count) {
    std::array<float, 2048> sum; // With the next one, fits the L1 cache.
    std::array<float, 2048> next;
    for (std::size_t i = 0; i < count; i += sum.size()) {
      const std::size_t size = std::min(count - i, sum.size());
      const auto at = [&](auto* halves) { return halves + i; };
      kernels.widen(sum.data(), at(reinterpret_cast<const std::uint16_t*>(in[0])), size);
      for (std::size_t k = 1; k < in.size(); ++k) {
        kernels.widen(next.data(), at(reinterpret_cast<const std::uint16_t*>(in[k])), size);
        add_into(sum.data(), next.data(), size);
      }
      kernels.narrow(at(reinterpret_cast<std::uint16_t*>(to)), sum.data(), size);
    }
  }

  void retire(Operation& operation) {
    const Collective& collective = operation.collective;
    if (operation.halves.empty()) {
      return;
    }
    std::vector<Chunks::Part> parts = {{0, collective.range.count()}};
    if (collective.kind == Collective::Kind::reduce_scatter) {
      parts = own_parts(operation);
    }
    const auto* halves = reinterpret_cast<const std::uint16_t*>(operation.halves.data());
    for (const Chunks::Part& part : parts) {
      wire_kernels(collective.wire)
          .widen(reinterpret_cast<float*>(collective.range.data()) + part.first,
                 halves + part.first, part.count);
    }
    spare_.push_back(std::move(operation.halves));
  }

  bool are_done(Operation& operation) {
    while (!operation.requests.empty()) {
      int done = 0;
      mpi_->check(mpi_->table().test(operation.requests.back(), &done), operation.what);
      if (done == 0) {
        return false;
      }
      operation.requests.pop_back();
    }
    return true;
  }

  /// Adds up what has arrived, in the order of start(), which is thus also the order of all second
  /// halves; retires finished operations, oldest first. Returns whether there were any.
  bool move_on() {
    bool moved = false;
    for (Operation& operation : under_way_) {
      if (operation.windows.empty()) {
        continue;
      }
      if (!are_done(operation)) {
        break;
      }
      add_up(operation);
      moved = true;
      if (operation.collective.kind == Collective::Kind::all_reduce) {
        gather(operation, true);
      }
    }
    while (!under_way_.empty() && under_way_.front().windows.empty() &&
           are_done(under_way_.front())) {
      retire(under_way_.front());
      under_way_.pop_front();
      moved = true;
    }
    return moved;
  }

  std::unique_ptr<Mpi> mpi_;
  Health& health_;
  std::list<PrivateMemory> memory_;
  std::deque<Operation> under_way_;           ///< In the order of start().
  std::vector<std::vector<std::byte>> spare_; ///< From finished operations.
  std::uint64_t started_ = 0;
};

} // namespace

std::unique_ptr<Transport> make_mpi(std::unique_ptr<Mpi> mpi, Health& health) {
  return std::make_unique<MpiTransport>(std::move(mpi), health);
}

} // namespace trainer
