#include <deque>
#include <list>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "trainer/collectives/memory.h"
#include "trainer/collectives/mpi/mpi.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_at_once = std::size_t{1} << 30; ///< Elements: MPI counts in int.

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

  Route route(std::size_t, WireType) const override { return {"MPI_Iallreduce", -1}; }

  std::span<float> allocate(std::size_t count) override {
    return memory_.emplace_back(count).floats();
  }

  std::uint64_t start(Collective collective) override {
    move_on();
    Operation operation{collective.text(), {}, {}, {}, collective.wire};
    const auto begin = [&](auto&&... arguments) {
      mpi_->check(arguments(&operation.requests.emplace_back(nullptr))..., operation.what);
    };
    const DtrainMpi& mpi = mpi_->table();
    const auto broadcast = [&](const Collective& part) {
      in_pieces(part.bytes.size(), [&](std::size_t first, std::size_t count) {
        begin([&](void** request) {
          return mpi.broadcast(part.bytes.data() + first, count, part.root, request);
        });
      });
    };
    switch (collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::reduce_scatter: { // The same here, of which a rank uses its chunk.
      operation.floats = {reinterpret_cast<float*>(collective.bytes.data()),
                          collective.bytes.size() / sizeof(float)};
      float* const floats = operation.floats.data();
      const std::size_t all = operation.floats.size();
      if (collective.wire == WireType::fp32) {
        in_pieces(all, [&](std::size_t first, std::size_t count) {
          begin([&](void** request) { return mpi.sum_floats(floats + first, count, request); });
        });
        break;
      }
      operation.halves = take_halves(all);
      std::uint16_t* const halves = operation.halves.data();
      wire_kernels(collective.wire).narrow(halves, floats, all);
      in_pieces(all, [&](std::size_t first, std::size_t count) {
        begin([&](void** request) {
          return mpi.sum_halves(halves + first, count, static_cast<int>(collective.wire), request);
        });
      });
      break;
    }
    case Collective::Kind::all_gather:
      for (const Collective& part :
           gather_by_broadcasts(collective, mpi_->rank(), mpi_->world_size())) {
        broadcast(part);
      }
      break;
    case Collective::Kind::broadcast:
      broadcast(collective);
      break;
    case Collective::Kind::barrier:
    case Collective::Kind::allocate:
      begin([&](void** request) { return mpi.barrier(request); });
      break;
    }
    under_way_.push_back(std::move(operation));
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
  struct Operation {
    std::string what;
    std::vector<void*> requests;       ///< Not yet done.
    std::span<float> floats;           ///< Of an all_reduce,
    std::vector<std::uint16_t> halves; ///< and what MPI adds up instead where they travel as
    WireType wire = WireType::fp32;    ///< 16 bits.
  };

  std::vector<std::uint16_t> take_halves(std::size_t count) {
    std::vector<std::uint16_t> halves;
    if (!spare_.empty()) {
      halves = std::move(spare_.back());
      spare_.pop_back();
    }
    halves.resize(count);
    return halves;
  }

  void retire(Operation& operation) {
    if (!operation.halves.empty()) {
      wire_kernels(operation.wire)
          .widen(operation.floats.data(), operation.halves.data(), operation.halves.size());
      spare_.push_back(std::move(operation.halves));
    }
  }

  template <typename Act>
  static void in_pieces(std::size_t count, const Act& act) {
    for (std::size_t first = 0; first < count; first += k_most_at_once) {
      act(first, std::min(k_most_at_once, count - first));
    }
  }

  /// Retires what is done, from the oldest on; true if something was.
  bool move_on() {
    bool moved = false;
    while (!under_way_.empty()) {
      Operation& oldest = under_way_.front();
      while (!oldest.requests.empty()) {
        int done = 0;
        mpi_->check(mpi_->table().test(oldest.requests.back(), &done), oldest.what);
        if (done == 0) {
          return moved;
        }
        oldest.requests.pop_back();
      }
      retire(oldest);
      under_way_.pop_front();
      moved = true;
    }
    return moved;
  }

  std::unique_ptr<Mpi> mpi_;
  Health& health_;
  std::list<PrivateMemory> memory_;
  std::deque<Operation> under_way_;               ///< In the order of start().
  std::vector<std::vector<std::uint16_t>> spare_; ///< Of operations that are done.
  std::uint64_t started_ = 0;
};

} // namespace

std::unique_ptr<Transport> make_mpi(std::unique_ptr<Mpi> mpi, Health& health) {
  return std::make_unique<MpiTransport>(std::move(mpi), health);
}

} // namespace trainer
