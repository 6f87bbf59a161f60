#include "trainer/elastic/membership.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/collectives/connect.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/elastic/membership_ending.h"
#include "trainer/entropy.h"
#include "trainer/errors.h"
#include "trainer/job/rendezvous.h"

namespace trainer {
namespace {

constexpr double k_retry_seconds = 0.05; ///< Before a busy member is asked again.
constexpr double k_set_up_seconds = 2;   ///< On top of a peer time-out, for connecting all.
constexpr double k_bind_seconds = 5;

bool is_literally_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

Address with_port_of(Address address, const Address& port) {
  address.set_port(port.port());
  return address;
}

} // namespace

Membership::Membership(const Cluster& cluster, const CommOptions& options,
                       const ElasticLimits& limits)
    : cluster_(cluster), options_(options), limits_(limits) {
  if (cluster.master_addr.empty() || cluster.master_port <= 0) {
    throw ClusterError("elastic ranks need MASTER_ADDR and MASTER_PORT, where rank 0 listens");
  }
  options_.contact = contact_;
  deadline_ = after_seconds(options.rendezvous_timeout);
  master_ = resolve(cluster.master_addr, cluster.master_port, deadline_);
  const Introduction self = introduce_self(LinkPurpose::membership, cluster.rank, 0);
  report_.self.id = random_value<std::uint64_t>();
  report_.self.pid = self.pid;
  report_.place = cluster.rank;
  std::copy_n(self.host.begin(), std::min(self.host.size(), report_.self.host.size() - 1),
              report_.self.host.begin());
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
  report_.self.address = local_address(listener);
  if (cluster.job_token.empty() && cluster.rank == 0 && options.notice) {
    options.notice(no_token_warning());
  }
  listener_ = std::make_unique<MemberListener>(std::move(listener), cluster.job_token,
                                               report_.self.id, master_);
}

Membership::~Membership() = default;

Epoch Membership::meet(const Holding& holding) {
  deadline_ = after_seconds(options_.rendezvous_timeout);
  report_.state_number = holding.number;
  report_.step = holding.step;
  is_complete_ = holding.is_complete;
  listener_->be_busy(newest().number);
  for (const int rank : contact_->take_closed()) {
    if (static_cast<std::size_t>(rank) < report_.formed.members.size()) {
      closed_.insert(report_.formed.members[static_cast<std::size_t>(rank)].id);
    }
  }
  WaitNotice notice(options_);
  for (;;) {
    notice.look([&] {
      return fmt::format("the other workers at {}:{} ({})", cluster_.master_addr,
                         cluster_.master_port, why_);
    });
    Ending ending = look_around();
    if (ending.kind == Ending::Kind::moved) {
      ending = join(ending.to);
    }
    if (ending.kind == Ending::Kind::formed) {
      return enter(std::move(ending));
    }
    if (ending.kind == Ending::Kind::over || ending.kind == Ending::Kind::behind) {
      Epoch epoch;
      epoch.is_left_behind = ending.kind == Ending::Kind::behind;
      return epoch;
    }
    if (Clock::now() >= deadline_) {
      throw Error(complaint({}));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(k_retry_seconds));
  }
}

bool Membership::has_newcomers() {
  const auto members = static_cast<int>(report_.formed.members.size());
  return (limits_.max_workers == 0 || members < limits_.max_workers) && listener_->has_peers();
}

const Roster& Membership::newest() const {
  const Roster* newest = &report_.formed;
  for (const Roster& attempt : report_.attempts) {
    newest = attempt.number > newest->number ? &attempt : newest;
  }
  return *newest;
}

/// One round: whoever should lead is found, or this member leads.
Membership::Ending Membership::look_around() {
  const Roster roster = newest();
  if (roster.number == 0) {
    if (cluster_.rank == 0 && !at_master_) {
      try {
        listener_->add_listener(listen_for_ranks(cluster_, deadline_, k_retry_seconds));
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
    Ending ending;
    for (const Address& master : master_) {
      ending = join(master);
      if (ending.kind != Ending::Kind::silent) {
        break;
      }
    }
    return ending;
  }
  for (const Member& member : roster.members) {
    if (member.id == report_.self.id) {
      return lead();
    }
    if (ended_.contains(member.id)) {
      continue;
    }
    Ending ending = join(member.address);
    if (ending.kind != Ending::Kind::silent) {
      return ending;
    }
  }
  return {};
}

/// Its address answered that nobody listens there: its machine, or a firewall between. That
/// of this machine's own can only be the first, and so is that of one whose connection was closed.
void Membership::note_refused(const Member& member) {
  if (closed_.contains(member.id) || is_of_this_machine(member.address)) {
    note_ended(member);
  }
}

/// Nobody listens there any more.
void Membership::note_ended(const Member& member) {
  ended_.insert(member.id);
  const auto seen = seen_.find(member.id);
  const Clock::time_point last =
      std::max(contact_->heard.load(), seen == seen_.end() ? Clock::time_point() : seen->second);
  if (std::chrono::duration<double>(Clock::now() - last).count() < answer_timeout()) {
    witnessed_.insert(member.id);
  }
}

Membership::Ending Membership::join(const Address& address) {
  const auto of_address = [&](const auto& action) {
    for (const Member& member : newest().members) {
      if (member.address.text() == address.text()) {
        action(member);
      }
    }
  };
  try {
    Fd link = dial_authenticated(
        address, cluster_.job_token,
        introduce_self(LinkPurpose::membership, cluster_.rank, cluster_.world_size),
        after_seconds(k_call_seconds));
    send_message(link, MessageKind::join, to_bytes(report_), after_seconds(k_call_seconds));
    const Message reply = receive_message(link, after_seconds(k_call_seconds));
    switch (reply.what) {
    case MessageKind::accepted:
      return stay(std::move(link),
                  [&] { of_address([&](const Member& m) { seen_[m.id] = Clock::now(); }); });
    case MessageKind::moved: {
      const Lead lead = read_lead(reply);
      // One that leads no newer roster than is known here has yet to find out that it is over.
      return {.kind =
                  lead.number > report_.formed.number ? Ending::Kind::moved : Ending::Kind::busy,
              .to = lead.leader};
    }
    case MessageKind::over:
      return {.kind = Ending::Kind::over};
    default:
      return {.kind = Ending::Kind::busy};
    }
  } catch (const RefusedError& error) {
    throw ClusterError(fmt::format("rank {} was refused: {}; give all ranks of an elastic job the "
                                   "same --min-workers",
                                   cluster_.rank, error.what()));
  } catch (const LinkError& error) {
    why_ = fmt::format("{}: {}", address.text(), error.what());
    if (dynamic_cast<const NobodyListensError*>(&error) != nullptr) {
      of_address([&](const Member& member) { note_refused(member); });
    }
    return {.kind = Ending::Kind::silent};
  }
}

/// With a leader that has let this member in, until it says what is.
Membership::Ending Membership::stay(Fd link, const std::function<void()>& on_message) {
  std::optional<Proposal> agreed;
  for (;;) {
    const Message message = receive_message(link, after_seconds(options_.peer_timeout));
    on_message();
    switch (message.what) {
    case MessageKind::waiting:
      break;
    case MessageKind::propose: {
      Proposal proposal = read_proposal(message.body);
      if (proposal.roster.number <= newest().number ||
          proposal.roster.find(report_.self.id) == nullptr ||
          report_.attempts.size() >= k_most_attempts) {
        return {.kind = Ending::Kind::busy};
      }
      // What is loopback to the leader is the leader's machine to others.
      const Address leader = remote_address(link);
      for (Member& member : proposal.roster.members) {
        if (&member == &proposal.roster.members.front() || member.address.is_loopback()) {
          member.address = with_port_of(leader, member.address);
        }
      }
      report_.attempts.push_back(proposal.roster);
      agreed = std::move(proposal);
      contact_->heard.store(Clock::now());
      send_message(link, MessageKind::agree, {}, after_seconds(k_call_seconds));
      break;
    }
    case MessageKind::formed: {
      if (!agreed) {
        return {.kind = Ending::Kind::busy};
      }
      Ending ending{.kind = Ending::Kind::formed, .proposal = std::move(*agreed)};
      ending.links.push_back(std::move(link));
      return ending;
    }
    case MessageKind::moved:
      return {.kind = Ending::Kind::moved, .to = read_lead(message).leader};
    case MessageKind::over:
      return {.kind = Ending::Kind::over};
    case MessageKind::failed:
      throw Error(dtrain::printable({reinterpret_cast<const char*>(message.body.data()),
                                     std::min<std::size_t>(message.body.size(), 400)}));
    default:
      return {.kind = Ending::Kind::busy};
    }
  }
}

/// The roster stands: connects its ranks.
Epoch Membership::enter(Ending ending) {
  report_.formed = ending.proposal.roster;
  report_.attempts.clear();
  const auto& members = report_.formed.members;
  std::vector<Introduction> who;
  int rank = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    who.push_back({LinkPurpose::rendezvous, static_cast<int>(i), static_cast<int>(members.size()),
                   members[i].pid, members[i].host.data()});
    rank = members[i].id == report_.self.id ? static_cast<int>(i) : rank;
  }
  if (rank == 0) {
    listener_->lead(report_.formed.number);
  } else {
    listener_->follow(report_.formed.number, members.front().address);
  }
  Epoch epoch;
  epoch.number = report_.formed.number;
  epoch.source = ending.proposal.source;
  epoch.step = ending.proposal.step;
  epoch.lost = std::move(ending.lost);
  epoch.joined = std::move(ending.joined);
  if (members.size() == 1) {
    epoch.communicator = make_single_rank();
  } else {
    epoch.communicator = connect_ranks(Star(rank, std::move(who), std::move(ending.links),
                                            options_.peer_timeout + k_set_up_seconds),
                                       cluster_.job_token, options_);
  }
  return epoch;
}

} // namespace trainer
