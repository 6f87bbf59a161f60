// The leader's part of a meeting (membership.h): who is here, who may go on, and the proposal.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/elastic/membership_ending.h"
#include "trainer/errors.h"
#include "trainer/job/rendezvous.h"

namespace trainer {
namespace {

constexpr double k_ask_seconds = 0.5;            ///< For a listener to answer, and between asking.
constexpr double k_agree_seconds = 3;            ///< For members to agree to a proposal.
constexpr double k_leading_slice_seconds = 0.02; ///< Between looks at who has come.
constexpr double k_leading_reassure_seconds = 0.5; ///< Between signs of life to those that wait.

std::string rank_name(std::size_t rank, const Member& member) {
  return fmt::format("rank {} ({})", rank, member.name());
}

bool precedes(const Roster& roster, const Member& a, const Member& b) {
  const Member* first = roster.find(a.id);
  const Member* second = roster.find(b.id);
  return first != nullptr && second != nullptr && first < second;
}

} // namespace

std::vector<const Roster*>
Membership::rosters(const std::vector<MemberListener::Peer>& present) const {
  const Roster* formed = &report_.formed;
  for (const auto& peer : present) {
    const Roster& theirs = peer.report.formed;
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
  add(report_.attempts);
  for (const auto& peer : present) {
    add(peer.report.attempts);
  }
  return all;
}

MemberIds Membership::ids_of(const std::vector<MemberListener::Peer>& present) const {
  MemberIds ids = {report_.self.id};
  for (const auto& peer : present) {
    ids.insert(peer.report.self.id);
  }
  return ids;
}

std::vector<Member> Membership::missing(const std::vector<MemberListener::Peer>& present) const {
  MemberIds known = ids_of(present);
  known.insert(ended_.begin(), ended_.end());
  return others_of(rosters(present), std::move(known));
}

bool Membership::speaks(const std::vector<MemberListener::Peer>& present) const {
  const auto all = rosters(present);
  return std::all_of(all.begin(), all.end(), [&, here = ids_of(present)](const Roster* roster) {
    return speaks_for(*roster, here, witnessed_);
  });
}

bool Membership::may_go_on(const std::vector<MemberListener::Peer>& present) const {
  return is_complete_ ||
         (static_cast<int>(present.size()) + 1 >= limits_.min_workers && speaks(present));
}

/// Nobody is left to wait for: of the first roster all have come, of later ones those that live.
bool Membership::are_all_here(const std::vector<MemberListener::Peer>& present,
                              const std::vector<Member>& absent) const {
  const auto all = rosters(present);
  const bool is_first =
      std::all_of(all.begin(), all.end(), [](const Roster* roster) { return roster->number == 0; });
  return is_first ? static_cast<int>(present.size()) + 1 >= cluster_.world_size : absent.empty();
}

Membership::Ending Membership::lead() {
  listener_->gather(newest().number);
  const Deadline patient_until =
      after_seconds(newest().number == 0 ? options_.rendezvous_timeout : answer_timeout());
  std::vector<MemberListener::Peer> present;
  Deadline next_reassurance = Clock::now();
  Deadline next_ask = Clock::now();
  std::size_t asked = 0;
  WaitNotice notice(options_);
  const auto send_away = [&](const Address& to) {
    listener_->follow(newest().number, to);
    listener_->be_busy(newest().number);
    const Lead lead{newest().number, report_.self.id, to};
    for (const auto& peer : present) {
      peer.tell(MessageKind::moved, bytes_of(lead));
    }
  };
  for (;;) {
    for (auto& peer : listener_->take_peers(k_leading_slice_seconds)) {
      std::erase_if(present, [&](const MemberListener::Peer& other) {
        return other.report.self.id == peer.report.self.id;
      });
      present.push_back(std::move(peer));
    }
    if (const auto invitation = listener_->invitation(); invitation && newest().number == 0) {
      send_away(*invitation);
      return {.kind = Ending::Kind::moved, .to = *invitation};
    }
    if (Clock::now() >= next_reassurance) {
      next_reassurance = after_seconds(k_leading_reassure_seconds);
      MemberListener::reassure(present);
    }
    std::erase_if(present, [](const MemberListener::Peer& peer) { return is_closed(peer.link); });
    for (const auto& peer : present) {
      seen_[peer.report.self.id] = Clock::now();
    }

    notice.look([&] {
      return fmt::format("workers at {}:{}: {} {} here", cluster_.master_addr, cluster_.master_port,
                         present.size() + 1, present.empty() ? "is" : "are");
    });
    const std::vector<Member> absent = missing(present);
    const bool is_complete = are_all_here(present, absent);
    const auto now = Clock::now();
    // Those that are enough at the time-out begin, and do not fail for it.
    if ((is_complete || now >= std::min(patient_until, deadline_)) && may_go_on(present)) {
      if (auto ending = propose(present)) {
        return std::move(*ending);
      }
      continue;
    }
    if (now >= deadline_) {
      const std::string text = complaint(present);
      for (const auto& peer : present) {
        peer.tell(MessageKind::failed, std::as_bytes(std::span(text)));
      }
      throw Error(text);
    }
    // The last of its rosters, which may not go on: what the others did is not known.
    if (newest().number != 0 && present.empty() && absent.empty() && !speaks(present)) {
      return {.kind = Ending::Kind::behind};
    }
    if (is_complete || absent.empty() || Clock::now() < next_ask) {
      continue;
    }
    // One of them, in turn.
    if (auto ending = ask(absent[asked++ % absent.size()])) {
      if (ending->kind == Ending::Kind::moved) {
        send_away(ending->to);
      }
      return std::move(*ending);
    }
    if (asked % absent.size() == 0) {
      // Soon enough to see the end of one that had answered.
      next_ask = after_seconds(std::min(k_ask_seconds, answer_timeout() / 4));
    }
  }
}

/// How a missing member stands: it may have ended, or lead itself.
std::optional<Membership::Ending> Membership::ask(const Member& member) {
  try {
    const Fd link = dial_authenticated(
        member.address, cluster_.job_token,
        introduce_self(LinkPurpose::membership, cluster_.rank, cluster_.world_size),
        after_seconds(k_ask_seconds));
    send_message(link, MessageKind::ask, {}, after_seconds(k_ask_seconds));
    const Message reply = receive_message(link, after_seconds(k_ask_seconds));
    if (reply.what == MessageKind::over) {
      return Ending{.kind = Ending::Kind::over};
    }
    const Lead lead = read_lead(reply);
    if (lead.id != member.id) {
      note_ended(member); // Its port is another's by now.
      return std::nullopt;
    }
    if (reply.what != MessageKind::leading && lead.number <= newest().number) {
      seen_[member.id] = Clock::now(); // It has yet to begin to wait for this one.
    }
    if (reply.what == MessageKind::moved && lead.number > newest().number) {
      return Ending{.kind = Ending::Kind::moved, .to = lead.leader};
    }
    if (reply.what == MessageKind::leading &&
        (lead.number > newest().number ||
         (lead.number == newest().number && precedes(newest(), member, report_.self)))) {
      return Ending{.kind = Ending::Kind::moved, .to = member.address};
    }
  } catch (const NobodyListensError& error) {
    why_ = fmt::format("{}: {}", member.address.text(), error.what());
    note_refused(member);
  } catch (const Error& error) {
    why_ = fmt::format("{}: {}", member.address.text(), error.what());
  }
  return std::nullopt;
}

/// None where not all agreed: those that did not are gone from `present`.
std::optional<Membership::Ending> Membership::propose(std::vector<MemberListener::Peer>& present) {
  const auto all = rosters(present);
  const Roster base = *all.front();
  Proposal proposal;
  for (const Roster* roster : all) {
    proposal.roster.number = std::max(proposal.roster.number, roster->number + 1);
  }
  // This member first, then those of the last roster in its order, then newcomers.
  const auto place = [&](const MemberListener::Peer& peer) {
    const auto in_base =
        std::find_if(base.members.begin(), base.members.end(),
                     [&](const Member& member) { return member.id == peer.report.self.id; });
    return std::pair(in_base, in_base == base.members.end() ? peer.report.place : 0);
  };
  std::stable_sort(present.begin(), present.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::size_t taken = present.size();
  if (limits_.max_workers > 0) {
    taken = std::min(taken, static_cast<std::size_t>(limits_.max_workers - 1));
  }
  proposal.roster.members.push_back(report_.self);
  std::uint64_t newest_state = report_.state_number;
  proposal.step = report_.step;
  for (std::size_t i = 0; i < taken; ++i) {
    const MemberReport& report = present[i].report;
    proposal.roster.members.push_back(report.self);
    if (std::pair(report.state_number, report.step) > std::pair(newest_state, proposal.step)) {
      newest_state = report.state_number;
      proposal.step = report.step;
      proposal.source = static_cast<std::int32_t>(i) + 1;
    }
  }
  if (report_.attempts.size() >= k_most_attempts) {
    throw Error(
        fmt::format("forming the group failed {} times in a row: {}", k_most_attempts, why_));
  }
  report_.attempts.push_back(proposal.roster);

  const auto body = to_bytes(proposal);
  std::vector<bool> agrees(taken, false);
  const Deadline deadline = after_seconds(k_agree_seconds);
  for (std::size_t i = 0; i < taken; ++i) {
    try {
      send_message(present[i].link, MessageKind::propose, body, deadline);
      agrees[i] = true;
    } catch (const LinkError& error) {
      why_ = error.what();
    }
  }
  for (std::size_t i = 0; i < taken; ++i) {
    try {
      agrees[i] =
          agrees[i] && receive_message(present[i].link, deadline).what == MessageKind::agree;
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

  contact_->heard.store(Clock::now());
  Ending ending{.kind = Ending::Kind::formed, .proposal = proposal};
  ending.links.emplace_back(); // Its own place.
  for (std::size_t i = 0; i < taken; ++i) {
    present[i].tell(MessageKind::formed, {},
                    k_call_seconds); // If it has gone, connecting shows it.
    ending.links.push_back(std::move(present[i].link));
  }
  present.erase(present.begin(), present.begin() + static_cast<std::ptrdiff_t>(taken));
  listener_->give_back(std::move(present));
  for (std::size_t i = 0; i < base.members.size(); ++i) {
    if (proposal.roster.find(base.members[i].id) == nullptr) {
      ending.lost.push_back(rank_name(i, base.members[i]));
    }
  }
  for (std::size_t i = 0; i < proposal.roster.members.size(); ++i) {
    const Member& member = proposal.roster.members[i];
    if (base.number > 0 && base.find(member.id) == nullptr) {
      ending.joined.push_back(rank_name(i, member));
    }
  }
  return ending;
}

std::string Membership::complaint(const std::vector<MemberListener::Peer>& present) {
  const std::size_t here = present.size() + 1;
  std::string text =
      fmt::format("waited {:g} s at {}:{} with {} worker{}", options_.rendezvous_timeout,
                  cluster_.master_addr, cluster_.master_port, here, here == 1 ? "" : "s");
  if (static_cast<int>(here) < limits_.min_workers) {
    text += fmt::format("; --min-workers={} are needed to continue", limits_.min_workers);
  } else if (newest().number > 0) {
    std::vector<std::string> unknown;
    for (const Member& member : missing(present)) {
      unknown.push_back(member.name());
    }
    text += fmt::format("; {}, and these workers are not a majority of the last {}",
                        unknown.empty() ? "others have ended unseen and may have continued before"
                                        : fmt::format("{} did not answer and may still be training",
                                                      fmt::join(unknown, ", ")),
                        newest().members.size());
  }
  return why_.empty() ? text : fmt::format("{} ({})", text, why_);
}

} // namespace trainer
