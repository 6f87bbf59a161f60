// The meeting: every rank connects to rank 0 at the master address and shakes hands. The
// connections stay: set-up exchanges small records over them, then the heartbeat uses them.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/cluster/cluster.h"
#include "trainer/job/handshake.h"
#include "trainer/job/options.h"
#include "trainer/job/socket.h"

namespace trainer {

/// Rank 0's listener at the master address: loopback when the master is this machine by name and
/// all ranks are here; the master's own address otherwise. Where the name resolves to loopback
/// although other hosts take part (Debian names its host 127.0.1.1), or to an address that is not
/// on this machine (a service's, or one behind NAT), all interfaces. Tries for `timeout` seconds
/// once the name is known; throws ClusterError.
Fd listen_for_ranks(const Cluster& cluster, Deadline name_deadline, double timeout);

/// Reports what is still waited for, once and then ever more rarely.
class WaitNotice {
 public:
  explicit WaitNotice(const JobOptions& options)
      : options_(options), pause_(options.notice_after), next_(after_seconds(pause_)) {}

  /// `what` gives the text, and is asked when it is time.
  template <typename What>
  void look(const What& what) {
    if (options_.notice && Clock::now() >= next_) {
      pause_ *= 2;
      next_ = after_seconds(pause_);
      options_.notice("still waiting for " + what());
    }
  }

 private:
  const JobOptions& options_;
  double pause_;
  Deadline next_;
};

/// A star of authenticated connections with rank 0 in the middle.
class Star {
 public:
  /// Returns when all ranks have come. Throws ClusterError when a rank is there twice, is of
  /// another world size or job; PeerError at the time-out, naming the ranks that are missing.
  Star(const Cluster& cluster, const JobOptions& options);

  /// For ranks that have already met: `who` in rank order, and connections as from release_links().
  /// Set-up must finish in `timeout` seconds.
  Star(int rank, std::vector<Introduction> who, std::vector<Fd> links, double timeout);

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return world_size_; }
  double timeout() const noexcept { return timeout_; }

  /// Every rank gives a record and gets all of them in rank order. Throws PeerError naming the
  /// rank that broke off.
  template <typename Record>
  std::vector<Record> exchange(const Record& mine) {
    static_assert(std::is_trivially_copyable_v<Record>);
    const std::vector<std::byte> bytes = exchange_bytes(bytes_of(mine));
    std::vector<Record> all(static_cast<std::size_t>(world_size_));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  /// Introductions of all ranks, in rank order.
  const std::vector<Introduction>& who() const noexcept { return who_; }

  /// This rank's address on the network that reaches rank 0, and rank 0's as seen from here.
  const Address& own_address() const noexcept { return own_address_; }
  const Address& hub_address() const noexcept { return hub_address_; }

  /// Hands the connections over. Rank 0: one a rank, its own empty; others: only [0].
  std::vector<Fd> release_links() { return std::move(links_); }

 private:
  void host(const Cluster& cluster, const JobOptions& options);
  void join(const Cluster& cluster, const JobOptions& options);
  std::vector<std::byte> exchange_bytes(std::span<const std::byte> mine);
  void abort_all(const std::string& text) noexcept;

  int rank_;
  int world_size_;
  double timeout_;
  std::vector<Fd> links_;
  std::vector<Introduction> who_;
  Address own_address_;
  Address hub_address_;
};

} // namespace trainer
