// The members of an elastic job, and which of them may continue without the rest.
//
//   member   one process from its start to its end; a restarted rank is another member
//   roster   the members of one generation in rank order, under a number greater than any before
//   formed   a roster that all its members have agreed to and that its leader has confirmed
//   attempt  one that a member has agreed to, and that was not confirmed to it
//
// Split brain. Members that were cut off from one another must not train on as two jobs. A group
// may form the next roster only where it has a quorum of the newest formed roster that any of its
// members knows, and of every newer attempt that any of them knows. It has a quorum of a roster
//
//   - with more than half of its members;
//   - with exactly half, the first of them included;
//   - with any member at all, where every other one was seen to end. A member listens as long as it
//     lives, so it has ended where its machine refuses connections to its address. A firewall can
//     refuse them too, so this counts only for addresses of this machine, or where the member's
//     machine has closed its connection besides; and only so soon after the last contact that the
//     member cannot have continued without this group, for which it would have waited. A member
//     that was stopped, and finds the others gone, does not know what they did meanwhile, and
//     stops.
//
// Two groups with a majority of one roster each share a member. It has agreed to the earlier of the
// two new rosters, so the later one's leader knows of that and needs a majority of it as well: this
// is dynamic voting with ambiguous attempts (Yeger-Lotem, Keidar and Dolev, "Dynamic voting for
// consistent primary components", PODC 1997). With --min-workers above half of the workers no group
// needs the third rule. The third rule fails only on three faults at once: members are cut off, the
// others form a roster with a newcomer, and all of that roster but the newcomer end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trainer/job/socket.h"

namespace trainer {

struct Member {
  std::uint64_t id = 0; ///< Drawn at random by the process.
  std::int64_t pid = 0;
  std::array<char, 64> host{};
  Address address; ///< Address on which it listens.

  std::string name() const; ///< "host-b, pid 123"
};

struct Roster {
  std::uint64_t number = 0; ///< 0: none.
  std::vector<Member> members;

  const Member* find(std::uint64_t id) const;
};

using MemberIds = std::set<std::uint64_t>;

/// Whether `present` is a quorum of `roster`, of which `ended` are known to have ended.
bool has_quorum_of(const Roster& roster, const MemberIds& present, const MemberIds& ended);

/// Members of any of the rosters that are not `known`, each once. For a quorum of all rosters their
/// state has to be found out: a member may be in an older roster alone.
std::vector<Member> unknown_members(std::span<const Roster* const> rosters, MemberIds known);

/// What a member sends as it joins a meeting.
struct MemberReport {
  Member self;
  std::int32_t place = 0;         ///< RANK, which orders newcomers.
  std::uint64_t state_number = 0; ///< The roster under which its training state was shared last.
  std::int64_t step = -1;         ///< Step of its state; -1: it has none.
  Roster formed;                  ///< The newest that it knows.
  std::vector<Roster> attempts;   ///< Newer than that.
};

struct Proposal {
  Roster roster;
  std::int32_t source = 0; ///< The rank with the newest state.
  std::int64_t step = -1;  ///< Step of that state; -1: no rank has one.
};

/// To and from bytes. Reading throws LinkError for malformed ones.
std::vector<std::byte> to_bytes(const MemberReport& report);
std::vector<std::byte> to_bytes(const Proposal& proposal);
MemberReport read_report(std::span<const std::byte> bytes);
Proposal read_proposal(std::span<const std::byte> bytes);

} // namespace trainer
