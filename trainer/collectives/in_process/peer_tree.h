// hierarchical-copy between the GPUs of one process that read each other's memory: no value passes
// through the host's.
//
// all_reduce, in the tree of in_process.h: in each level one GPU of a pair copies the other's
// values into scratch memory, part by part, and adds them to its own; then the sum is copied back
// down. Its bits are those of the tree on the host. The last replica to start an all_reduce puts it
// on a stream of its own a GPU, behind what the GPUs' own streams held when the replicas started
// it; wait_in() lets a stream go on behind it, and the host waits for the other replicas alone.
//
// Cost, S bytes and n replicas: log2(n) · 2 · S over the link between two GPUs, one after the
// other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/forwarding.h"
#include "trainer/device/cuda/cuda_device.h"

namespace trainer {

class PeerTree {
 public:
  /// Of one GPU a replica, which let_peers_in() has found to reach each other, and which outlive
  /// it.
  explicit PeerTree(const std::vector<CudaDevice*>& gpus);

 private:
  friend class PeerCommunicator;
  struct Member {
    CudaDevice& gpu;
    std::unique_ptr<Stream> stream;
    Buffer scratch;            ///< Of what is copied from another GPU.
    std::uint64_t started = 0; ///< Sums.
  };
  struct Sum {
    std::vector<std::span<float>> parts;       ///< A replica's each, once it has started,
    std::vector<std::unique_ptr<Event>> ready; ///< and when the GPU has made it.
    std::size_t started = 0;
    std::vector<std::unique_ptr<Event>> done; ///< Once it is on the streams.
    std::size_t left = 0;                     ///< Replicas that have waited for it.
  };

  std::uint64_t start(std::size_t replica, std::span<float> values);
  void put(Sum& sum);
  /// `check` throws where another replica has failed.
  template <typename Check>
  void wait_in(std::size_t replica, Stream& stream, std::uint64_t number, const Check& check);
  Sum& at(std::uint64_t number) { return sums_[number - retired_]; }

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::deque<Sum> sums_; ///< From number `retired_` on.
  std::uint64_t retired_ = 0;
};

/// Lets each GPU read the memory of each other one. Empty, or why they cannot: "gpu:0 cannot read
/// the memory of gpu:2".
std::string let_peers_in(const std::vector<CudaDevice*>& gpus);

/// Of one replica, for use by one thread: the tree for sums of float32 on the GPU's memory, `inner`
/// in all else.
class PeerCommunicator final : public ForwardingCommunicator {
 public:
  PeerCommunicator(Communicator& inner, PeerTree& tree, int replica)
      : ForwardingCommunicator(inner), tree_(tree), replica_(static_cast<std::size_t>(replica)) {}

  std::string describe() const override;
  std::span<float> allocate_on_device(std::size_t count) override;
  using Communicator::start;
  Ticket start(Collective collective) override;
  void carry_out(Collective collective) override { wait(start(std::move(collective))); }
  void wait(Ticket ticket) override;
  void wait_in(Stream& stream, Ticket ticket) override;

 private:
  struct Call {
    Ticket ticket;
    bool is_in_tree;
    std::uint64_t number; ///< Of the tree's, or the ticket of `inner`.
  };
  bool is_in_tree(const Collective& collective) const;

  PeerTree& tree_;
  std::size_t replica_;
  std::vector<std::span<float>> memory_; ///< Of the device.
  std::deque<Call> under_way_;
  Ticket next_ = 0;
};

} // namespace trainer
