#include <algorithm>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "trainer/collectives/tcp/ring.h"

namespace trainer {
namespace {

/// Within a host, sent data that is not yet received stays in a cache if it is little.
constexpr int k_unread_within_host = 256 * 1024;
constexpr int k_streams_between_hosts = 4;

/// Where a rank listens for its predecessor in the ring.
struct RingEndpoint {
  Address address;
  std::int32_t streams = 0; ///< Wanted number; 0: it is not a member.
};

/// 0.0.0.0 or [::], on which rank 0 listens if its name is not its own address: that of a Pod whose
/// node is lost, as long as the cluster's DNS has both.
bool is_any(const Address& address) {
  return address.text() == any_address(address.storage.ss_family, address.port()).text();
}

/// A rank on rank 0's host may know only loopback: from elsewhere it is where rank 0 is.
Address reachable(const Star& star, const RingEndpoint& endpoint) {
  Address address = endpoint.address;
  if (is_any(address) || (address.is_loopback() && !star.hub_address().is_loopback())) {
    address = star.hub_address();
    address.set_port(endpoint.address.port());
  }
  return address;
}

bool is_one_host(const Star& star) {
  const auto& who = star.who();
  return std::all_of(who.begin(), who.end(),
                     [&](const Introduction& one) { return one.host == who.front().host; });
}

Fd listen_for_ring(const Star& star) {
  Address address = star.own_address();
  if (address.is_loopback() && !is_one_host(star)) {
    address = any_address(address.storage.ss_family, 0);
  }
  address.set_port(0);
  return listen_at(address);
}

/// The connections from `expected`, the only rank let in, in the order in which it makes them.
void answer(Fd listener, const std::string& token, const Introduction& expected, Deadline deadline,
            std::vector<RingLinks>& streams) {
  Acceptor acceptor(std::move(listener), token, LinkPurpose::ring,
                    [&](const Introduction& who) -> std::optional<std::string> {
                      if (who.rank != expected.rank || who.world_size != expected.world_size) {
                        return fmt::format("only rank {} may connect here", expected.rank);
                      }
                      return std::nullopt;
                    });
  for (RingLinks& stream : streams) {
    auto arrival = acceptor.next(deadline);
    if (!arrival) {
      throw PeerError(fmt::format("{} did not make its data connection in time", expected.name()));
    }
    stream.previous = std::move(arrival->link);
  }
}

} // namespace

std::vector<RingLinks> link_ring(Star& star, const std::vector<int>& members,
                                 const std::string& token, double peer_timeout, int streams) {
  const auto self = std::find(members.begin(), members.end(), star.rank());
  const bool takes_part = self != members.end() && members.size() > 1;
  RingEndpoint mine;
  Fd listener;
  if (takes_part) {
    listener = listen_for_ring(star);
    const int port = local_address(listener).port();
    mine.address = star.own_address();
    mine.address.set_port(port);
    mine.streams = streams > 0 ? streams : is_one_host(star) ? 1 : k_streams_between_hosts;
  }
  const std::vector<RingEndpoint> endpoints = star.exchange(mine);
  if (!takes_part) {
    return std::vector<RingLinks>(1);
  }
  for (const RingEndpoint& endpoint : endpoints) {
    mine.streams = endpoint.streams > 0 ? std::min(mine.streams, endpoint.streams) : mine.streams;
  }
  const std::size_t n = members.size();
  const auto at = static_cast<std::size_t>(self - members.begin());
  const Introduction& next = star.who()[static_cast<std::size_t>(members[(at + 1) % n])];
  const Introduction& previous = star.who()[static_cast<std::size_t>(members[(at + n - 1) % n])];
  const Deadline deadline = after_seconds(peer_timeout);
  std::vector<RingLinks> links(static_cast<std::size_t>(mine.streams));

  std::exception_ptr failed;
  std::thread answering([&] {
    try {
      answer(std::move(listener), token, previous, deadline, links);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  const Address to = reachable(star, endpoints[static_cast<std::size_t>(next.rank)]);
  std::string why;
  try {
    for (RingLinks& stream : links) { // Each is accepted before the next one asks.
      stream.next = dial_authenticated(
          to, token, introduce_self(LinkPurpose::ring, star.rank(), star.world_size()), deadline);
    }
  } catch (const Error& error) {
    why = error.what();
  }
  answering.join();
  if (!why.empty()) {
    throw PeerError(fmt::format("rank {} cannot connect to {} at {}: {}", star.rank(), next.name(),
                                to.text(), why));
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
  for (RingLinks& stream : links) {
    stream.members = members;
    stream.position = static_cast<int>(at);
    tune_link(stream.next, peer_timeout);
    if (is_within_host(stream.next)) {
      limit_unread(stream.next, k_unread_within_host);
    }
    tune_link(stream.previous, peer_timeout);
  }
  return links;
}

} // namespace trainer
