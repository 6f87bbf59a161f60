// The workers' connections at a task that serves them, parameter server or chief, on one poll loop:
// newcomers are let in once they have shaken hands, what they send is read as it comes, and who
// breaks off or is silent for a peer time-out is lost.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "trainer/job/arrivals.h"
#include "trainer/job/beat.h"
#include "trainer/job/channel.h"
#include "trainer/job/dialling.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

/// A connection, from the handshake to where it is `over`.
struct Peer : FrameHandler {
  Peer(Introduction introduction, Fd link)
      : who(std::move(introduction)), channel(std::move(link), *this) {}

  Introduction who;
  Channel channel;
  bool over = false;             ///< To be removed.
  Deadline heard = Clock::now(); ///< When its last frame came.
};

template <typename One>
class Peers {
 public:
  using Lose = std::function<void(One&, const std::string& why)>;

  /// Listens. Throws ClusterError, naming `what`, where the address cannot be had.
  Peers(const TaskAddress& where, const std::string& what, const std::string& token,
        LinkPurpose purpose, double peer_timeout, double patience, Lose lose)
      : listener_(listen_as_task(where, what, patience)), port_(local_address(listener_).port()),
        arrivals_(std::move(listener_), token, purpose), peer_timeout_(peer_timeout),
        lose_(std::move(lose)) {}

  int port() const noexcept { return port_; }
  void wake() noexcept { arrivals_.wake(); }
  std::string refusals() const { return arrivals_.refusals(); }

  std::list<One>& all() noexcept { return all_; }
  const std::list<One>& all() const noexcept { return all_; }

  /// Where it throws LinkError, `one` is lost.
  template <typename Act>
  void guarded(One& one, const Act& act) {
    try {
      act();
    } catch (const LinkError& error) {
      lose_(one, error.what());
    }
  }

  /// Waits for what comes, a beat's time at most, and hands it on. Whether anything did.
  bool serve() {
    polled_.clear();
    polled_.push_back({arrivals_.fd(), POLLIN, 0});
    for (const One& one : all_) {
      const short out = one.channel.has_unsent() ? POLLOUT : 0;
      polled_.push_back({one.channel.fd(), static_cast<short>(POLLIN | out), 0});
    }
    if (poll(polled_.data(), polled_.size(),
             poll_timeout(after_seconds(beat_seconds(peer_timeout_)))) <= 0) {
      return false;
    }
    std::size_t i = 0;
    for (One& one : all_) {
      if (polled_[++i].revents != 0 && !one.over) {
        guarded(one, [&] {
          one.channel.flush();
          one.channel.receive();
          one.heard = Clock::now();
        });
      }
    }
    return true;
  }

  template <typename Owner>
  void let_in(Owner& owner) {
    for (Acceptor::Arrival& arrival : arrivals_.take()) {
      tune_link(arrival.link, peer_timeout_);
      all_.emplace_back(std::move(arrival.who), std::move(arrival.link), owner);
    }
  }

  /// Now and then: who is silent is lost, the others are told that this task lives, where `hears`.
  template <typename Hears>
  void beat(const Hears& hears) {
    if (Clock::now() < next_beat_) {
      return;
    }
    next_beat_ = after_seconds(beat_seconds(peer_timeout_));
    for (One& one : all_) {
      const double silent = -seconds_until(one.heard);
      if (!one.over && silent > peer_timeout_) {
        lose_(one, fmt::format("silent for {:.0f} s", silent));
      } else if (!one.over && hears(one) && !one.channel.has_unsent()) {
        guarded(one, [&] { one.channel.send(FrameType::beat); });
      }
    }
  }

 private:
  Fd listener_; ///< Until arrivals_ has it.
  int port_;
  Arrivals arrivals_;
  double peer_timeout_;
  Lose lose_;
  std::list<One> all_;
  std::vector<pollfd> polled_;
  Deadline next_beat_ = Clock::now();
};

} // namespace trainer
