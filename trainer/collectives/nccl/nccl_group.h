// Collectives on GPUs' memory by NCCL: of this process' GPUs, one a replica, and of all workers'.
//
// A collective is put on a stream of its own a GPU, behind what the GPU's own stream holds, and
// wait_in() lets a stream go on behind it; the host waits for nothing. The last replica of a
// process to start a collective puts it for all of them, as one group of NCCL's:
//
//   GPU's stream  backward ──┬─ backward ─────────── ▼ update
//   NCCL's stream            └─ all_reduce ──────────┘
//
// Small things (records, host memory, barriers) go beside it, by a communicator of the host's,
// whose heartbeat also knows which ranks are lost: a thread asks it and NCCL 20 times a second, and
// where a rank has failed it ends what is under way (NCCL would wait without end), and all later
// calls throw PeerError naming the rank. What a stream has made since is then worth nothing, so who
// reads a device's result asks check() behind it.
//
// reduce_scatter and all_gather are NCCL's own where the chunks are of one length, else a group of
// a reduce or a broadcast a rank.
//
// Sums are in NCCL's order: the same bits on every rank, and in every run of the same library on
// the same GPUs. 16-bit values are rounded on the GPU before they are added up, and NCCL rounds
// each sum of two.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/collectives/forwarding.h"
#include "trainer/device/cuda/cuda_device.h"

namespace trainer {

class NcclGroup {
 public:
  /// For one GPU per replica. `between` connects the workers, which all have the same number of
  /// GPUs; `between` and the GPUs outlive the group. Collective. Throws PeerError, at the latest
  /// after `timeout` seconds.
  NcclGroup(const DtrainNccl& nccl, const std::vector<CudaDevice*>& gpus, Communicator& between,
            double timeout);
  /// Aborts what is under way if an exception passes; otherwise waits for it.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// "NCCL 2.30.7, 4 ranks", and those of its settings that the environment has.
  std::string describe() const;

  /// A replica gives up: all calls of this process' replicas throw, now and later.
  void fail(const std::string& why) noexcept;

 private:
  friend class NcclCommunicator;
  struct Member;
  struct Launch;

  std::span<float> allocate(std::size_t replica, std::size_t count);
  void use(std::size_t replica, std::span<float> memory);
  std::uint64_t start(std::size_t replica, const Collective& collective);
  void wait_in(std::size_t replica, Stream& stream, std::uint64_t number);
  void check();

  using Lock = std::unique_lock<std::mutex>;
  void launch(Launch& one, Lock& lock);
  void add_calls(Member& member, const Collective& collective, std::vector<NcclCall>& calls) const;
  void finish(Lock& lock, const char* what);
  void fail_with(const std::string& why, Lock& lock);
  void check_failure() const;
  std::string what_is_wrong(int error, const Member& member) const;
  void watch();
  void retire();
  int world_size() const;

  const DtrainNccl& nccl_;
  Communicator& between_;
  int exceptions_;

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Member>> members_;
  std::deque<std::unique_ptr<Launch>> launches_; ///< From number `retired_` on.
  std::uint64_t retired_ = 0;
  std::string failure_;
  bool is_over_ = false;

  std::thread watch_;
};

/// Communicator of one replica, for use by one thread: NCCL on the GPU's memory, `inner` for
/// everything else.
class NcclCommunicator final : public ForwardingCommunicator {
 public:
  NcclCommunicator(Communicator& inner, NcclGroup& group, int replica)
      : ForwardingCommunicator(inner), group_(group), replica_(static_cast<std::size_t>(replica)) {}

  std::string describe() const override { return group_.describe(); }
  Route route(std::size_t /*bytes*/, WireType /*wire*/) const override {
    return {"as NCCL chooses", -1};
  }
  std::span<float> allocate_on_device(std::size_t count) override {
    return group_.allocate(replica_, count);
  }
  void use_on_device(std::span<float> memory) override { group_.use(replica_, memory); }
  using Communicator::start;
  Ticket start(Collective collective) override;
  void carry_out(Collective collective) override { wait(start(std::move(collective))); }
  void wait(Ticket ticket) override;
  void wait_in(Stream& stream, Ticket ticket) override;
  void check() override;

 private:
  struct Call {
    Ticket ticket;
    bool is_on_device;
    std::uint64_t number; ///< Number in the group, or the ticket of `inner`.
  };
  bool is_on_device(const Range& range) const;

  NcclGroup& group_;
  std::size_t replica_;
  std::deque<Call> under_way_;
  Ticket next_ = 0;
};

} // namespace trainer
