#include "trainer/comm/membership.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include "trainer/comm/connect.h"
#include "trainer/comm/rendezvous.h"
#include "trainer/comm/single_rank.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr double k_call_seconds = 1;       ///< For a door to answer …
constexpr double k_ask_seconds = 0.5;      ///< … while others wait for this member.
constexpr double k_agree_seconds = 3;      ///< For members to agree to a proposal.
constexpr double k_retry_seconds = 0.05;   ///< Before a busy member is asked again.
constexpr double k_slice_seconds = 0.02;   ///< Between looks at who has come.
constexpr double k_reassure_seconds = 0.5; ///< Between signs of life to those that wait.
constexpr double k_set_up_seconds = 2;     ///< On top of a peer time-out, for connecting all.
constexpr double k_bind_seconds = 5;
constexpr std::size_t k_most_attempts = 64; ///< As the wire has room for.

std::uint64_t random_id() {
  std::uint64_t id = 0;
  if (getentropy(&id, sizeof id) != 0) {
    throw Error("getentropy: " + error_text(errno));
  }
  return id;
}

bool is_literally_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

Address with_port_of(Address address, const Address& port) {
  address.set_port(port.port());
  return address;
}

std::string rank_name(std::size_t rank, const Member& member) {
  return fmt::format("rank {} ({})", rank, member.name());
}

} // namespace

/// How a call at a door, or a turn at leading, has ended.
struct Membership::Outcome {
  enum class Kind {
    formed, ///< `proposal` stands, and `links` lead to its members.
    moved,  ///< To `to`.
    busy,   ///< It is alive: again later.
    silent, ///< Nobody answers.
    over    ///< The job is done.
  };
  Kind kind = Kind::silent;
  Address to{};
  Proposal proposal{};
  std::vector<Fd> links{};
  std::vector<std::string> lost{};
  std::vector<std::string> joined{};
};

Membership::Membership(const Cluster& cluster, const CommOptions& options,
                       const ElasticLimits& limits)
    : cluster_(cluster), options_(options), limits_(limits) {
  if (cluster.master_addr.empty() || cluster.master_port <= 0) {
    throw ClusterError(
        "elastic ranks need MASTER_ADDR and MASTER_PORT, where the first one listens");
  }
  deadline_ = after_seconds(options.rendezvous_timeout);
  master_ = resolve(cluster.master_addr, cluster.master_port, deadline_);
  const Introduction self = introduce_self(LinkPurpose::membership, cluster.rank, 0);
  standing_.self.id = random_id();
  standing_.self.pid = self.pid;
  standing_.place = cluster.rank;
  std::copy_n(self.host.begin(), std::min(self.host.size(), standing_.self.host.size() - 1),
              standing_.self.host.begin());
  const bool one_host = cluster.local_world_size >= cluster.world_size && cluster.world_size > 1;
  const Address& master = master_.front();
  Address own = master;
  if (!master.is_loopback() || !(one_host || is_literally_loopback(cluster.master_addr))) {
    own = any_address(master.storage.ss_family, 0);
  }
  own.set_port(0);
  Fd listener;
  try {
    listener = listen_at(own);
  } catch (const LinkError& error) {
    throw ClusterError(fmt::format("cannot listen at {}: {}", own.text(), error.what()));
  }
  standing_.self.door = local_address(listener);
  door_ =
      std::make_unique<Door>(std::move(listener), cluster.job_token, standing_.self.id, master_);
}

Membership::~Membership() = default;

Epoch Membership::meet(const Holding& holding) {
  deadline_ = after_seconds(options_.rendezvous_timeout);
  standing_.state_number = holding.number;
  standing_.step = holding.step;
  is_complete_ = holding.is_complete;
  door_->be_busy(newest().number);
  WaitNotice notice(options_);
  for (;;) {
    notice.look([&] {
      return fmt::format("the other workers at {}:{} ({})", cluster_.master_addr,
                         cluster_.master_port, why_);
    });
    Outcome outcome = look_around();
    if (outcome.kind == Outcome::Kind::moved) {
      outcome = join(outcome.to);
    }
    if (outcome.kind == Outcome::Kind::formed) {
      return enter(std::move(outcome));
    }
    if (outcome.kind == Outcome::Kind::over) {
      return {};
    }
    if (Clock::now() >= deadline_) {
      throw Error(complaint({}));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(k_retry_seconds));
  }
}

bool Membership::has_newcomers() {
  const auto members = static_cast<int>(standing_.formed.members.size());
  return (limits_.max_workers == 0 || members < limits_.max_workers) && door_->has_visitors();
}

const Roster& Membership::newest() const {
  const Roster* newest = &standing_.formed;
  for (const Roster& attempt : standing_.attempts) {
    newest = attempt.number > newest->number ? &attempt : newest;
  }
  return *newest;
}

/// One round: whoever should lead is found, or this member leads.
Membership::Outcome Membership::look_around() {
  const Roster roster = newest();
  if (roster.number == 0) {
    if (cluster_.rank == 0 && !at_master_) {
      try {
        door_->add_listener(listen_for_ranks(cluster_, deadline_, k_retry_seconds));
        at_master_ = true;
      } catch (const ClusterError&) {
        // A member may have taken the place: it answers.
        if (Clock::now() >=
            deadline_ - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                            options_.rendezvous_timeout - k_bind_seconds))) {
          throw;
        }
      }
    }
    if (cluster_.rank == 0 && at_master_) {
      return lead();
    }
    Outcome outcome;
    for (const Address& master : master_) {
      outcome = join(master);
      if (outcome.kind != Outcome::Kind::silent) {
        break;
      }
    }
    return outcome;
  }
  for (const Member& member : roster.members) {
    if (member.id == standing_.self.id) {
      return lead();
    }
    if (ended_.contains(member.id)) {
      continue;
    }
    Outcome outcome = join(member.door);
    if (outcome.kind != Outcome::Kind::silent) {
      return outcome;
    }
  }
  return {};
}

Membership::Outcome Membership::join(const Address& address) {
  try {
    Fd link = dial_authenticated(
        address, cluster_.job_token,
        introduce_self(LinkPurpose::membership, cluster_.rank, cluster_.world_size),
        after_seconds(k_call_seconds));
    send_letter(link, DoorMessage::join, to_bytes(standing_), after_seconds(k_call_seconds));
    const Letter reply = receive_letter(link, after_seconds(k_call_seconds));
    switch (reply.what) {
    case DoorMessage::accepted:
      return stay(std::move(link));
    case DoorMessage::moved: {
      const Lead lead = read_lead(reply);
      // One that leads no newer roster than is known here has yet to find out that it is over.
      return {.kind = lead.number > standing_.formed.number ? Outcome::Kind::moved
                                                            : Outcome::Kind::busy,
              .to = lead.leader};
    }
    case DoorMessage::over:
      return {.kind = Outcome::Kind::over};
    default:
      return {.kind = Outcome::Kind::busy};
    }
  } catch (const RefusedError& error) {
    throw ClusterError(fmt::format("rank {} was refused: {}; give all ranks of an elastic job the "
                                   "same --min-workers",
                                   cluster_.rank, error.what()));
  } catch (const LinkError& error) {
    why_ = fmt::format("{}: {}", address.text(), error.what());
    for (const Member& member : newest().members) {
      if (member.door.text() == address.text() &&
          dynamic_cast<const NobodyListensError*>(&error) != nullptr) {
        ended_.insert(member.id);
      }
    }
    return {.kind = Outcome::Kind::silent};
  }
}

/// With a leader that has let this member in, until it says what is.
Membership::Outcome Membership::stay(Fd link) {
  std::optional<Proposal> agreed;
  for (;;) {
    const Letter letter = receive_letter(link, after_seconds(options_.peer_timeout));
    switch (letter.what) {
    case DoorMessage::waiting:
      break;
    case DoorMessage::propose: {
      Proposal proposal = read_proposal(letter.body);
      if (proposal.roster.number <= newest().number ||
          proposal.roster.find(standing_.self.id) == nullptr ||
          standing_.attempts.size() >= k_most_attempts) {
        return {.kind = Outcome::Kind::busy};
      }
      // What is loopback to the leader is the leader's machine to others.
      const Address leader = remote_address(link);
      for (Member& member : proposal.roster.members) {
        if (&member == &proposal.roster.members.front() || member.door.is_loopback()) {
          member.door = with_port_of(leader, member.door);
        }
      }
      standing_.attempts.push_back(proposal.roster);
      agreed = std::move(proposal);
      send_letter(link, DoorMessage::agree, {}, after_seconds(k_call_seconds));
      break;
    }
    case DoorMessage::formed: {
      if (!agreed) {
        return {.kind = Outcome::Kind::busy};
      }
      Outcome outcome{.kind = Outcome::Kind::formed, .proposal = std::move(*agreed)};
      outcome.links.push_back(std::move(link));
      return outcome;
    }
    case DoorMessage::moved:
      return {.kind = Outcome::Kind::moved, .to = read_lead(letter).leader};
    case DoorMessage::over:
      return {.kind = Outcome::Kind::over};
    case DoorMessage::failed:
      throw Error(std::string(reinterpret_cast<const char*>(letter.body.data()),
                              std::min<std::size_t>(letter.body.size(), 400)));
    default:
      return {.kind = Outcome::Kind::busy};
    }
  }
}

std::vector<const Roster*> Membership::rosters(const std::vector<Door::Visitor>& present) const {
  const Roster* formed = &standing_.formed;
  for (const auto& visitor : present) {
    const Roster& theirs = visitor.standing.formed;
    formed = theirs.number > formed->number ? &theirs : formed;
  }
  std::vector<const Roster*> all = {formed};
  const auto add = [&](const std::vector<Roster>& attempts) {
    for (const Roster& attempt : attempts) {
      if (attempt.number > formed->number) {
        all.push_back(&attempt);
      }
    }
  };
  add(standing_.attempts);
  for (const auto& visitor : present) {
    add(visitor.standing.attempts);
  }
  return all;
}

bool Membership::may_go_on(const std::vector<Door::Visitor>& present, bool& is_complete) {
  MemberIds ids = {standing_.self.id};
  for (const auto& visitor : present) {
    ids.insert(visitor.standing.self.id);
  }
  is_complete = true;
  bool speaks = true;
  bool is_first = true;
  for (const Roster* roster : rosters(present)) {
    is_first = is_first && roster->number == 0;
    speaks = speaks && speaks_for(*roster, ids, ended_);
    for (const Member& member : roster->members) {
      is_complete = is_complete && (ids.contains(member.id) || ended_.contains(member.id));
    }
  }
  const auto here = static_cast<int>(ids.size());
  if (is_first) {
    is_complete = here >= cluster_.world_size;
  }
  return (speaks && here >= limits_.min_workers) || is_complete_;
}

Membership::Outcome Membership::lead() {
  door_->gather(newest().number);
  const Deadline patience =
      after_seconds(newest().number == 0 ? options_.rendezvous_timeout : options_.peer_timeout / 2);
  std::vector<Door::Visitor> present;
  Deadline next_reassurance = Clock::now();
  Deadline next_ask = Clock::now();
  std::size_t asked = 0;
  WaitNotice notice(options_);
  const auto send_away = [&](const Address& to) {
    door_->follow(newest().number, to);
    door_->be_busy(newest().number);
    for (const auto& visitor : present) {
      try {
        const Lead lead{newest().number, standing_.self.id, to};
        send_letter(visitor.link, DoorMessage::moved, bytes_of(lead), after_seconds(0));
      } catch (const LinkError&) {
        continue;
      }
    }
  };
  for (;;) {
    for (auto& visitor : door_->take_visitors(k_slice_seconds)) {
      std::erase_if(present, [&](const Door::Visitor& other) {
        return other.standing.self.id == visitor.standing.self.id;
      });
      present.push_back(std::move(visitor));
    }
    if (const auto invitation = door_->invitation(); invitation && newest().number == 0) {
      send_away(*invitation);
      return {.kind = Outcome::Kind::moved, .to = *invitation};
    }
    if (Clock::now() >= next_reassurance) {
      next_reassurance = after_seconds(k_reassure_seconds);
      std::erase_if(present, [](const Door::Visitor& visitor) {
        try {
          send_letter(visitor.link, DoorMessage::waiting, {}, after_seconds(0));
          return false;
        } catch (const LinkError&) {
          return true;
        }
      });
    }
    std::erase_if(present, [](const Door::Visitor& visitor) { return is_closed(visitor.link); });

    notice.look([&] {
      return fmt::format("workers at {}:{}: {} {} here", cluster_.master_addr, cluster_.master_port,
                         present.size() + 1, present.empty() ? "is" : "are");
    });
    bool is_complete = false;
    if (may_go_on(present, is_complete) && (is_complete || Clock::now() >= patience)) {
      if (auto outcome = propose(present)) {
        return std::move(*outcome);
      }
      continue;
    }
    if (Clock::now() >= deadline_) {
      const std::string text = complaint(present);
      for (const auto& visitor : present) {
        try {
          send_letter(visitor.link, DoorMessage::failed, std::as_bytes(std::span(text)),
                      after_seconds(0));
        } catch (const LinkError&) {
          continue;
        }
      }
      throw Error(text);
    }
    const Roster& roster = newest();
    if (is_complete || roster.members.empty() || Clock::now() < next_ask) {
      continue;
    }
    // One of those that are missing, in turn.
    const std::size_t n = roster.members.size();
    std::size_t own = 0;
    for (std::size_t i = 0; i < n; ++i) {
      own = roster.members[i].id == standing_.self.id ? i : own;
    }
    bool found = false;
    for (std::size_t tried = 0; tried < n && !found; ++tried) {
      const Member& member = roster.members[asked++ % n];
      const bool is_here =
          member.id == standing_.self.id || ended_.contains(member.id) ||
          std::any_of(present.begin(), present.end(), [&](const Door::Visitor& visitor) {
            return visitor.standing.self.id == member.id;
          });
      if (!is_here) {
        found = true;
        if (auto outcome = ask(member, (asked - 1) % n, own)) {
          if (outcome->kind == Outcome::Kind::moved) {
            send_away(outcome->to);
          }
          return std::move(*outcome);
        }
      }
    }
    if (!found || asked % n == 0) {
      next_ask = after_seconds(k_ask_seconds);
    }
  }
}

/// How a missing member stands: it may have ended, or lead itself.
std::optional<Membership::Outcome> Membership::ask(const Member& member, std::size_t index,
                                                   std::size_t own_index) {
  try {
    const Fd link = dial_authenticated(
        member.door, cluster_.job_token,
        introduce_self(LinkPurpose::membership, cluster_.rank, cluster_.world_size),
        after_seconds(k_ask_seconds));
    send_letter(link, DoorMessage::ask, {}, after_seconds(k_ask_seconds));
    const Letter reply = receive_letter(link, after_seconds(k_ask_seconds));
    if (reply.what == DoorMessage::over) {
      return Outcome{.kind = Outcome::Kind::over};
    }
    const Lead lead = read_lead(reply);
    if (lead.id != member.id) {
      ended_.insert(member.id); // Its port is another's by now.
    } else if (reply.what == DoorMessage::moved && lead.number > newest().number) {
      return Outcome{.kind = Outcome::Kind::moved, .to = lead.leader};
    } else if (reply.what == DoorMessage::leading &&
               (lead.number > newest().number ||
                (lead.number == newest().number && index < own_index))) {
      return Outcome{.kind = Outcome::Kind::moved, .to = member.door};
    }
  } catch (const NobodyListensError&) {
    ended_.insert(member.id);
  } catch (const Error& error) {
    why_ = fmt::format("{}: {}", member.door.text(), error.what());
  }
  return std::nullopt;
}

/// None where not all agreed: those that did not are gone from `present`.
std::optional<Membership::Outcome> Membership::propose(std::vector<Door::Visitor>& present) {
  const auto all = rosters(present);
  const Roster base = *all.front();
  Proposal proposal;
  for (const Roster* roster : all) {
    proposal.roster.number = std::max(proposal.roster.number, roster->number + 1);
  }
  // This member first, then those of the last roster in its order, then newcomers.
  const auto place = [&](const Door::Visitor& visitor) {
    const auto in_base =
        std::find_if(base.members.begin(), base.members.end(),
                     [&](const Member& member) { return member.id == visitor.standing.self.id; });
    return std::pair(in_base, in_base == base.members.end() ? visitor.standing.place : 0);
  };
  std::stable_sort(present.begin(), present.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::size_t taken = present.size();
  if (limits_.max_workers > 0) {
    taken = std::min(taken, static_cast<std::size_t>(limits_.max_workers - 1));
  }
  proposal.roster.members.push_back(standing_.self);
  std::uint64_t newest_state = standing_.state_number;
  proposal.step = standing_.step;
  for (std::size_t i = 0; i < taken; ++i) {
    const Standing& standing = present[i].standing;
    proposal.roster.members.push_back(standing.self);
    if (std::pair(standing.state_number, standing.step) > std::pair(newest_state, proposal.step)) {
      newest_state = standing.state_number;
      proposal.step = standing.step;
      proposal.source = static_cast<std::int32_t>(i) + 1;
    }
  }
  if (standing_.attempts.size() >= k_most_attempts) {
    throw Error(fmt::format("{} rosters in a row broke off as they were formed: {}",
                            k_most_attempts, why_));
  }
  standing_.attempts.push_back(proposal.roster);

  const auto body = to_bytes(proposal);
  std::vector<bool> agrees(taken, false);
  const Deadline deadline = after_seconds(k_agree_seconds);
  for (std::size_t i = 0; i < taken; ++i) {
    try {
      send_letter(present[i].link, DoorMessage::propose, body, deadline);
      agrees[i] = true;
    } catch (const LinkError& error) {
      why_ = error.what();
    }
  }
  for (std::size_t i = 0; i < taken; ++i) {
    try {
      agrees[i] = agrees[i] && receive_letter(present[i].link, deadline).what == DoorMessage::agree;
    } catch (const LinkError& error) {
      why_ = error.what();
      agrees[i] = false;
    }
  }
  if (std::find(agrees.begin(), agrees.end(), false) != agrees.end()) {
    for (std::size_t i = taken; i-- > 0;) {
      if (!agrees[i]) {
        present.erase(present.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return std::nullopt;
  }

  Outcome outcome{.kind = Outcome::Kind::formed, .proposal = proposal};
  outcome.links.emplace_back(); // Its own place.
  for (std::size_t i = 0; i < taken; ++i) {
    try {
      send_letter(present[i].link, DoorMessage::formed, {}, after_seconds(k_call_seconds));
    } catch (const LinkError&) {
      // Connecting will show it.
    }
    outcome.links.push_back(std::move(present[i].link));
  }
  present.erase(present.begin(), present.begin() + static_cast<std::ptrdiff_t>(taken));
  door_->give_back(std::move(present));
  for (std::size_t i = 0; i < base.members.size(); ++i) {
    if (proposal.roster.find(base.members[i].id) == nullptr) {
      outcome.lost.push_back(rank_name(i, base.members[i]));
    }
  }
  for (std::size_t i = 0; i < proposal.roster.members.size(); ++i) {
    const Member& member = proposal.roster.members[i];
    if (base.number > 0 && base.find(member.id) == nullptr) {
      outcome.joined.push_back(rank_name(i, member));
    }
  }
  return outcome;
}

/// The roster stands: connects its ranks.
Epoch Membership::enter(Outcome outcome) {
  standing_.formed = outcome.proposal.roster;
  standing_.attempts.clear();
  const auto& members = standing_.formed.members;
  std::vector<Introduction> who;
  int rank = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    who.push_back({LinkPurpose::rendezvous, static_cast<int>(i), static_cast<int>(members.size()),
                   members[i].pid, members[i].host.data()});
    rank = members[i].id == standing_.self.id ? static_cast<int>(i) : rank;
  }
  if (rank == 0) {
    door_->lead(standing_.formed.number);
  } else {
    door_->follow(standing_.formed.number, members.front().door);
  }
  Epoch epoch;
  epoch.number = standing_.formed.number;
  epoch.source = outcome.proposal.source;
  epoch.step = outcome.proposal.step;
  epoch.lost = std::move(outcome.lost);
  epoch.joined = std::move(outcome.joined);
  if (members.size() == 1) {
    epoch.communicator = make_single_rank();
  } else {
    epoch.communicator = connect_ranks(Star(rank, std::move(who), std::move(outcome.links),
                                            options_.peer_timeout + k_set_up_seconds),
                                       cluster_.job_token, options_);
  }
  return epoch;
}

std::string Membership::complaint(const std::vector<Door::Visitor>& present) {
  const std::size_t here = present.size() + 1;
  std::string text =
      fmt::format("waited {:g} s at {}:{} with {} worker{}", options_.rendezvous_timeout,
                  cluster_.master_addr, cluster_.master_port, here, here == 1 ? "" : "s");
  if (static_cast<int>(here) < limits_.min_workers) {
    text += fmt::format(": --min-workers={} are needed to go on", limits_.min_workers);
  } else if (newest().number > 0) {
    std::vector<std::string> unknown;
    const Roster& roster = newest();
    for (std::size_t i = 0; i < roster.members.size(); ++i) {
      const std::uint64_t id = roster.members[i].id;
      const bool is_here = id == standing_.self.id || ended_.contains(id) ||
                           std::any_of(present.begin(), present.end(), [&](const auto& visitor) {
                             return visitor.standing.self.id == id;
                           });
      if (!is_here) {
        unknown.push_back(rank_name(i, roster.members[i]));
      }
    }
    text += fmt::format(": {} did not answer and may be training as well, and these are not more "
                        "than half of the last {}",
                        fmt::join(unknown, ", "), roster.members.size());
  }
  return why_.empty() ? text : fmt::format("{} ({})", text, why_);
}

} // namespace trainer
