#include "trainer/collectives/in_process/peer_tree.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr std::size_t k_part = std::size_t{1} << 20; ///< Floats that are copied at a time.
constexpr std::chrono::milliseconds k_turn{50};      ///< Between looks at whether a replica failed.

} // namespace

std::string let_peers_in(const std::vector<CudaDevice*>& gpus) {
  for (CudaDevice* const gpu : gpus) {
    for (const CudaDevice* const other : gpus) {
      if (gpu != other && !gpu->reach(*other)) {
        return fmt::format("gpu:{} cannot read the memory of gpu:{}", gpu->index(), other->index());
      }
    }
  }
  return "";
}

PeerTree::PeerTree(const std::vector<CudaDevice*>& gpus) {
  for (CudaDevice* const gpu : gpus) {
    const bool adds = members_.size() % 2 == 0; // The others only give.
    members_.push_back({*gpu, gpu->make_stream(), gpu->allocate(adds ? k_part : 0, DType::f32)});
  }
}

std::uint64_t PeerTree::start(std::size_t replica, std::span<float> values) {
  Member& member = members_[replica];
  auto ready = member.gpu.stream().record();
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = member.started++;
  if (number == retired_ + sums_.size()) {
    Sum& made = sums_.emplace_back();
    made.parts.resize(members_.size());
    made.ready.resize(members_.size());
  }
  Sum& sum = at(number);
  sum.parts[replica] = values;
  sum.ready[replica] = std::move(ready);
  if (++sum.started == members_.size()) {
    put(sum);
    changed_.notify_all();
  }
  return number;
}

/// All replicas have started it.
void PeerTree::put(Sum& sum) {
  const std::size_t count = sum.parts.front().size();
  for (const std::span<float>& part : sum.parts) {
    if (part.size() != count) {
      throw PeerError(
          fmt::format("the replicas' collectives differ: all_reduce of {} floats and of {}", count,
                      part.size()));
    }
  }
  const std::size_t replicas = members_.size();
  const auto stream = [&](std::size_t replica) -> Stream& { return *members_[replica].stream; };
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    stream(replica).wait(*sum.ready[replica]);
  }
  std::size_t distance = 1;
  for (; distance < replicas; distance *= 2) {
    for (std::size_t to = 0; to + distance < replicas; to += 2 * distance) {
      stream(to).wait(*stream(to + distance).record());
      const Member& member = members_[to];
      for (std::size_t first = 0; first < count; first += k_part) {
        const std::span<float> own = sum.parts[to].subspan(first, std::min(k_part, count - first));
        stream(to).copy(sum.parts[to + distance].data() + first, member.scratch.memory(),
                        own.size_bytes());
        member.gpu.kernels().blend(stream(to), own.size(), 1, member.scratch.data(), 1, own.data());
      }
    }
  }
  while ((distance /= 2) >= 1) {
    for (std::size_t from = 0; from + distance < replicas; from += 2 * distance) {
      stream(from + distance).wait(*stream(from).record());
      stream(from + distance)
          .copy(sum.parts[from].data(), sum.parts[from + distance].data(), count * sizeof(float));
      stream(from).wait(*stream(from + distance).record()); // It may be written to from then on.
    }
  }
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    sum.done.push_back(stream(replica).record());
  }
}

template <typename Check>
void PeerTree::wait_in(std::size_t replica, Stream& stream, std::uint64_t number,
                       const Check& check) {
  std::unique_lock lock(mutex_);
  while (at(number).done.empty()) {
    changed_.wait_for(lock, k_turn);
    check();
  }
  Sum& sum = at(number);
  stream.wait(*sum.done[replica]);
  ++sum.left;
  for (; !sums_.empty() && sums_.front().left == members_.size(); ++retired_) {
    sums_.pop_front();
  }
}

std::string PeerCommunicator::describe() const {
  return fmt::format("memory of one process, {} replicas, hierarchical copy from GPU to GPU",
                     world_size());
}

std::span<float> PeerCommunicator::allocate_on_device(std::size_t count) {
  return memory_.emplace_back(inner().allocate_on_device(count));
}

bool PeerCommunicator::is_in_tree(const Collective& collective) const {
  const Range& range = collective.range;
  return collective.kind == Collective::Kind::all_reduce && range.dtype() == DType::f32 &&
         collective.wire == WireType::fp32 &&
         std::any_of(memory_.begin(), memory_.end(),
                     [&](const std::span<float>& one) { return range.begins_in(one); });
}

Communicator::Ticket PeerCommunicator::start(Collective collective) {
  if (is_in_tree(collective)) {
    auto* const values = reinterpret_cast<float*>(collective.range.data());
    const std::uint64_t number = tree_.start(replica_, {values, collective.range.count()});
    under_way_.push_back({next_, true, number});
  } else {
    under_way_.push_back({next_, false, inner().start(std::move(collective))});
  }
  return next_++;
}

void PeerCommunicator::wait(Ticket ticket) {
  wait_in(tree_.members_[replica_].gpu.stream(), ticket);
}

void PeerCommunicator::wait_in(Stream& stream, Ticket ticket) {
  for (; !under_way_.empty() && under_way_.front().ticket <= ticket; under_way_.pop_front()) {
    const Call& call = under_way_.front();
    if (call.is_in_tree) {
      tree_.wait_in(replica_, stream, call.number, [this] { inner().check(); });
    } else {
      inner().wait_in(stream, call.number);
    }
  }
}

} // namespace trainer
