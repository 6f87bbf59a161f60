#include "trainer/elastic/door.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "trainer/job/frames.h"

namespace trainer {
namespace {

constexpr std::uint64_t k_longest_letter = 64 << 20;
constexpr double k_slice_seconds = 0.05;
constexpr double k_letter_seconds = 1;
constexpr double k_reassure_seconds = 0.5;
constexpr double k_master_seconds = 1;
constexpr double k_master_answer_seconds = 0.3;

/// An address of this side's own machine, as the other side of `link` reaches it.
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

void send_letter(const Fd& link, DoorMessage what, std::span<const std::byte> body,
                 Deadline deadline) {
  send_frame(link, static_cast<std::uint32_t>(what), body, deadline);
}

Letter receive_letter(const Fd& link, Deadline deadline) {
  Frame frame = receive_frame(link, k_longest_letter, deadline);
  return {static_cast<DoorMessage>(frame.what), std::move(frame.body)};
}

Lead read_lead(const Letter& letter) {
  Lead lead;
  if (letter.body.size() != sizeof lead) {
    throw LinkError("it does not say how it stands");
  }
  std::memcpy(&lead, letter.body.data(), sizeof lead);
  if (lead.leader.length > sizeof lead.leader.storage) {
    throw LinkError("it sent no address");
  }
  return lead;
}

bool Door::Visitor::tell(DoorMessage what, std::span<const std::byte> body, double seconds) const {
  try {
    send_letter(link, what, body, after_seconds(seconds));
    return true;
  } catch (const LinkError&) {
    return false;
  }
}

void Door::reassure(std::vector<Visitor>& visitors) {
  std::erase_if(visitors, [](const Visitor& visitor) {
    return !visitor.tell(DoorMessage::waiting) || is_closed(visitor.link);
  });
}

Door::Door(Fd listener, std::string token, std::uint64_t id, std::vector<Address> master)
    : token_(std::move(token)), id_(id), master_(std::move(master)), own_(local_address(listener)) {
  Acceptor acceptor(std::move(listener), token_, LinkPurpose::membership,
                    [](const Introduction&) { return std::nullopt; });
  thread_ =
      std::thread([this, acceptor = std::move(acceptor)]() mutable { run(std::move(acceptor)); });
}

Door::~Door() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Door::be_busy(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  state_ = State::busy;
  number_ = number;
}

void Door::gather(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  state_ = number == 0 ? State::forming : State::gathering;
  number_ = number;
  invitation_.reset();
}

void Door::lead(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  state_ = State::leading;
  number_ = number;
}

void Door::follow(std::uint64_t number, const Address& leader) {
  change(State::following, number, leader);
}

void Door::be_over() { change(State::over, 0, {}); }

void Door::change(State state, std::uint64_t number, const Address& leader) {
  std::vector<Visitor> turned_away;
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
    number_ = number;
    leader_ = leader;
    turned_away.swap(visitors_);
  }
  const Lead lead{number, id_, leader};
  for (const Visitor& visitor : turned_away) {
    visitor.tell(state == State::over ? DoorMessage::over : DoorMessage::moved, bytes_of(lead),
                 k_letter_seconds);
  }
}

void Door::add_listener(Fd listener) {
  const std::lock_guard lock(mutex_);
  new_listeners_.push_back(std::move(listener));
  at_master_ = true;
}

std::vector<Door::Visitor> Door::take_visitors(double seconds) {
  std::unique_lock lock(mutex_);
  has_visitor_.wait_for(lock, std::chrono::duration<double>(seconds),
                        [this] { return !visitors_.empty() || invitation_; });
  std::vector<Visitor> taken;
  taken.swap(visitors_);
  return taken;
}

bool Door::has_visitors() {
  const std::lock_guard lock(mutex_);
  return !visitors_.empty();
}

void Door::give_back(std::vector<Visitor> visitors) {
  const std::lock_guard lock(mutex_);
  std::move(visitors.begin(), visitors.end(), std::back_inserter(visitors_));
}

std::optional<Address> Door::invitation() {
  const std::lock_guard lock(mutex_);
  return invitation_;
}

void Door::run(Acceptor acceptor) {
  Deadline next_look = Clock::now();
  Deadline next_reassurance = Clock::now();
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
      // Whoever it was comes again, or does not.
    }
    if (Clock::now() >= next_reassurance) {
      next_reassurance = after_seconds(k_reassure_seconds);
      const std::lock_guard lock(mutex_);
      reassure(visitors_);
    }
    if (Clock::now() >= next_look) {
      next_look = after_seconds(k_master_seconds);
      look_after_master(acceptor);
    }
  }
}

void Door::answer(Fd link) {
  const Letter letter = receive_letter(link, after_seconds(k_letter_seconds));
  const Deadline deadline = after_seconds(k_letter_seconds);
  Standing standing;
  if (letter.what == DoorMessage::join) {
    standing = read_standing(letter.body);
    Address from = remote_address(link); // What it is reached at, whatever it listens at.
    from.set_port(standing.self.door.port());
    standing.self.door = from;
  }
  const std::lock_guard lock(mutex_);
  if (letter.what == DoorMessage::invite) {
    if (state_ == State::forming) {
      invitation_ = read_lead(letter).leader;
      has_visitor_.notify_one();
    }
    return;
  }
  Lead lead{number_, id_, {}};
  auto what = DoorMessage::busy;
  switch (state_) {
  case State::busy:
    break;
  case State::forming:
    what = DoorMessage::forming;
    break;
  case State::gathering:
    what = DoorMessage::leading;
    break;
  case State::leading:
    what = DoorMessage::moved;
    lead.leader = local_address(link);
    lead.leader.set_port(own_.port());
    break;
  case State::following:
    what = DoorMessage::moved;
    lead.leader = as_seen_over(link, leader_);
    break;
  case State::over:
    what = DoorMessage::over;
    break;
  }
  const bool let_in =
      letter.what == DoorMessage::join &&
      (state_ == State::forming || state_ == State::gathering || state_ == State::leading);
  send_letter(link, let_in ? DoorMessage::accepted : what, bytes_of(lead), deadline);
  if (let_in) {
    visitors_.push_back({std::move(link), std::move(standing)});
    has_visitor_.notify_one();
  }
}

void Door::look_after_master(Acceptor& acceptor) {
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
      // It is another machine's, or a member holds it.
    }
    try {
      const auto call = [&] {
        return dial_authenticated(master, token_, introduce_self(LinkPurpose::membership, 0, 0),
                                  after_seconds(k_master_answer_seconds));
      };
      const Fd link = call();
      send_letter(link, DoorMessage::ask, {}, after_seconds(k_master_answer_seconds));
      const Letter reply = receive_letter(link, after_seconds(k_master_answer_seconds));
      if (reply.what == DoorMessage::forming) {
        const Fd second = call();
        Lead lead{*number, id_, local_address(second)};
        lead.leader.set_port(own_.port());
        send_letter(second, DoorMessage::invite, bytes_of(lead),
                    after_seconds(k_master_answer_seconds));
      }
      return;
    } catch (const Error&) {
      continue; // Nobody is there: in a second again.
    }
  }
}

} // namespace trainer
