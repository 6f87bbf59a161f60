#include <algorithm>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "trainer/comm/ring.h"

namespace trainer {
namespace {

/// Within a host, what was sent and not yet received waits in a cache, if it is little.
constexpr int k_unread_within_host = 256 * 1024;

/// Where a rank listens for the one before it in the ring.
struct Door {
  Address address;
  std::int32_t is_open = 0;
};

/// A rank on rank 0's host may know only loopback: from elsewhere it is where rank 0 is.
Address reachable(const Star& star, const Door& door) {
  Address address = door.address;
  if (address.is_loopback() && !star.hub_address().is_loopback()) {
    address = star.hub_address();
    address.set_port(door.address.port());
  }
  return address;
}

Fd open_door(const Star& star) {
  const auto& who = star.who();
  const bool one_host = std::all_of(who.begin(), who.end(), [&](const Introduction& one) {
    return one.host == who.front().host;
  });
  Address address = star.own_address();
  if (address.is_loopback() && !one_host) {
    address = any_address(address.storage.ss_family, 0);
  }
  address.set_port(0);
  return listen_at(address);
}

/// The connection from `expected`, the only rank let in.
Fd answer_door(Fd door, const std::string& token, const Introduction& expected, Deadline deadline) {
  Acceptor acceptor(std::move(door), token, LinkPurpose::ring,
                    [&](const Introduction& who) -> std::optional<std::string> {
                      if (who.rank != expected.rank || who.world_size != expected.world_size) {
                        return fmt::format("rank {} is expected here", expected.rank);
                      }
                      return std::nullopt;
                    });
  if (auto arrival = acceptor.next(deadline)) {
    return std::move(arrival->link);
  }
  throw PeerError(fmt::format("{} did not make its data connection in time", expected.name()));
}

} // namespace

RingLinks link_ring(Star& star, std::vector<int> members, const std::string& token,
                    double peer_timeout) {
  RingLinks links;
  links.members = std::move(members);
  const auto self = std::find(links.members.begin(), links.members.end(), star.rank());
  const bool takes_part = self != links.members.end() && links.members.size() > 1;
  Door mine;
  Fd listener;
  if (takes_part) {
    listener = open_door(star);
    const int port = local_address(listener).port();
    mine.address = star.own_address();
    mine.address.set_port(port);
    mine.is_open = 1;
  }
  const std::vector<Door> doors = star.exchange(mine);
  if (!takes_part) {
    return links;
  }
  const std::size_t n = links.members.size();
  const auto at = static_cast<std::size_t>(self - links.members.begin());
  links.position = static_cast<int>(at);
  const int next = links.members[(at + 1) % n];
  const int previous = links.members[(at + n - 1) % n];
  const Deadline deadline = after_seconds(peer_timeout);

  std::exception_ptr failed;
  std::thread answering([&] {
    try {
      links.previous = answer_door(std::move(listener), token,
                                   star.who()[static_cast<std::size_t>(previous)], deadline);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  std::string why;
  try {
    const Address to = reachable(star, doors[static_cast<std::size_t>(next)]);
    links.next = dial_authenticated(
        to, token, introduce_self(LinkPurpose::ring, star.rank(), star.world_size()), deadline);
  } catch (const Error& error) {
    why = error.what();
  }
  answering.join();
  if (!why.empty()) {
    throw PeerError(fmt::format("rank {} cannot connect to {} at {}: {}", star.rank(),
                                star.who()[static_cast<std::size_t>(next)].name(),
                                reachable(star, doors[static_cast<std::size_t>(next)]).text(),
                                why));
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
  tune_link(links.next, peer_timeout);
  if (is_within_host(links.next)) {
    limit_unread(links.next, k_unread_within_host);
  }
  tune_link(links.previous, peer_timeout);
  return links;
}

} // namespace trainer
