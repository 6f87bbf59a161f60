#include "trainer/elastic/member_listener.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "trainer/job/frames.h"

namespace trainer {
namespace {

constexpr std::uint64_t k_longest_message = 64 << 20;
constexpr double k_slice_seconds = 0.05;
constexpr double k_message_seconds = 1;
constexpr double k_keepalive_seconds = 0.5;
constexpr double k_master_seconds = 1;
constexpr double k_master_answer_seconds = 0.3;

/// `address`, which is of this machine, as the peer of `link` reaches it.
Address as_seen_over(const Fd& link, Address address) {
  const Address here = local_address(link);
  if (address.is_loopback() && !here.is_loopback()) {
    Address seen = here;
    seen.set_port(address.port());
    return seen;
  }
  return address;
}

} // namespace

void send_message(const Fd& link, MessageKind kind, std::span<const std::byte> body,
                  Deadline deadline) {
  send_frame(link, static_cast<std::uint32_t>(kind), body, deadline);
}

Message receive_message(const Fd& link, Deadline deadline) {
  Frame frame = receive_frame(link, k_longest_message, deadline);
  return {static_cast<MessageKind>(frame.what), std::move(frame.body)};
}

Lead read_lead(const Message& message) {
  Lead lead;
  if (message.body.size() != sizeof lead) {
    throw LinkError("it did not report its state");
  }
  std::memcpy(&lead, message.body.data(), sizeof lead);
  if (lead.leader.length > sizeof lead.leader.storage) {
    throw LinkError("it sent no address");
  }
  return lead;
}

bool MemberListener::Peer::send(MessageKind kind, std::span<const std::byte> body,
                                double seconds) const {
  try {
    send_message(link, kind, body, after_seconds(seconds));
    return true;
  } catch (const LinkError&) {
    return false;
  }
}

void MemberListener::send_keepalives(std::vector<Peer>& peers) {
  std::erase_if(peers, [](const Peer& peer) {
    return !peer.send(MessageKind::waiting) || is_closed(peer.link);
  });
}

MemberListener::MemberListener(Fd listener, std::string token, std::uint64_t id,
                               std::vector<Address> master)
    : token_(std::move(token)), id_(id), master_(std::move(master)), own_(local_address(listener)) {
  Acceptor acceptor(std::move(listener), token_, LinkPurpose::membership);
  thread_ =
      std::thread([this, acceptor = std::move(acceptor)]() mutable { run(std::move(acceptor)); });
}

MemberListener::~MemberListener() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void MemberListener::set_busy(std::uint64_t number) { enter(State::busy, number); }

void MemberListener::gather(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  state_ = number == 0 ? State::forming : State::gathering;
  number_ = number;
  invitation_.reset();
}

void MemberListener::lead(std::uint64_t number) { enter(State::leading, number); }

void MemberListener::follow(std::uint64_t number, const Address& leader) {
  change(State::following, number, leader);
}

void MemberListener::set_over() { change(State::over, 0, {}); }

void MemberListener::enter(State state, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  number_ = number;
}

void MemberListener::change(State state, std::uint64_t number, const Address& leader) {
  std::vector<Peer> redirected;
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
    number_ = number;
    leader_ = leader;
    redirected.swap(peers_);
  }
  const Lead lead{number, id_, leader};
  for (const Peer& peer : redirected) {
    peer.send(state == State::over ? MessageKind::over : MessageKind::moved, bytes_of(lead),
              k_message_seconds);
  }
}

void MemberListener::add_listener(Fd listener) {
  const std::lock_guard lock(mutex_);
  new_listeners_.push_back(std::move(listener));
  at_master_ = true;
}

std::vector<MemberListener::Peer> MemberListener::take_peers(double seconds) {
  std::unique_lock lock(mutex_);
  has_peer_.wait_for(lock, std::chrono::duration<double>(seconds),
                     [this] { return !peers_.empty() || invitation_; });
  std::vector<Peer> taken;
  taken.swap(peers_);
  return taken;
}

bool MemberListener::has_peers() {
  const std::lock_guard lock(mutex_);
  return !peers_.empty();
}

void MemberListener::give_back(std::vector<Peer> peers) {
  const std::lock_guard lock(mutex_);
  std::move(peers.begin(), peers.end(), std::back_inserter(peers_));
}

std::optional<Address> MemberListener::invitation() {
  const std::lock_guard lock(mutex_);
  return invitation_;
}

void MemberListener::run(Acceptor acceptor) {
  Deadline next_look = Clock::now();
  Deadline next_keepalive = Clock::now();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;
      }
      for (Fd& listener : new_listeners_) {
        acceptor.add_listener(std::move(listener));
      }
      new_listeners_.clear();
    }
    try {
      if (auto arrival = acceptor.next(after_seconds(k_slice_seconds))) {
        answer(std::move(arrival->link));
      }
    } catch (const Error&) {
      // The caller retries, or gives up.
    }
    if (Clock::now() >= next_keepalive) {
      next_keepalive = after_seconds(k_keepalive_seconds);
      const std::lock_guard lock(mutex_);
      send_keepalives(peers_);
    }
    if (Clock::now() >= next_look) {
      next_look = after_seconds(k_master_seconds);
      hold_master_address(acceptor);
    }
  }
}

void MemberListener::answer(Fd link) {
  const Message message = receive_message(link, after_seconds(k_message_seconds));
  const Deadline deadline = after_seconds(k_message_seconds);
  MemberReport report;
  if (message.kind == MessageKind::join) {
    report = read_report(message.body);
    Address from = remote_address(link); // Where others reach it, which its own view need not be.
    from.set_port(report.self.address.port());
    report.self.address = from;
  }
  const std::lock_guard lock(mutex_);
  if (message.kind == MessageKind::invite) {
    if (state_ == State::forming) {
      invitation_ = read_lead(message).leader;
      has_peer_.notify_one();
    }
    return;
  }
  Lead lead{number_, id_, {}};
  auto kind = MessageKind::busy;
  switch (state_) {
  case State::busy:
    break;
  case State::forming:
    kind = MessageKind::forming;
    break;
  case State::gathering:
    kind = MessageKind::leading;
    break;
  case State::leading:
    kind = MessageKind::moved;
    lead.leader = local_address(link);
    lead.leader.set_port(own_.port());
    break;
  case State::following:
    kind = MessageKind::moved;
    lead.leader = as_seen_over(link, leader_);
    break;
  case State::over:
    kind = MessageKind::over;
    break;
  }
  const bool let_in =
      message.kind == MessageKind::join &&
      (state_ == State::forming || state_ == State::gathering || state_ == State::leading);
  send_message(link, let_in ? MessageKind::accepted : kind, bytes_of(lead), deadline);
  if (let_in) {
    peers_.push_back({std::move(link), std::move(report)});
    has_peer_.notify_one();
  }
}

void MemberListener::hold_master_address(Acceptor& acceptor) {
  const auto led = [this]() -> std::optional<std::uint64_t> {
    const std::lock_guard lock(mutex_);
    const bool is_led = state_ == State::gathering || state_ == State::leading;
    return is_led && !at_master_ ? std::optional(number_) : std::nullopt;
  };
  const auto number = led();
  if (!number) {
    return;
  }
  for (const Address& master : master_) {
    try {
      acceptor.add_listener(listen_at(master));
      const std::lock_guard lock(mutex_);
      at_master_ = true;
      return;
    } catch (const LinkError&) {
      // The address is another machine's, or in use by a member.
    }
    try {
      const auto call = [&] {
        return dial_authenticated(master, token_, introduce_self(LinkPurpose::membership, 0, 0),
                                  after_seconds(k_master_answer_seconds));
      };
      const Fd link = call();
      send_message(link, MessageKind::ask, {}, after_seconds(k_master_answer_seconds));
      const Message reply = receive_message(link, after_seconds(k_master_answer_seconds));
      if (reply.kind == MessageKind::forming) {
        const Fd second = call();
        Lead lead{*number, id_, local_address(second)};
        lead.leader.set_port(own_.port());
        send_message(second, MessageKind::invite, bytes_of(lead),
                     after_seconds(k_master_answer_seconds));
      }
      return;
    } catch (const Error&) {
      continue; // Nobody listens there: tried again in a second.
    }
  }
}

} // namespace trainer
