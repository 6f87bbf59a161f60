// Who belongs together: the members of an elastic job, and who of them may go on without the rest.
//
//   member   one process from its start to its end; a restarted rank is another member
//   roster   the members of one epoch in rank order, under a number greater than any before it
//   formed   a roster that all its members have agreed to and that its leader has said is theirs
//   attempt  one that a member has agreed to, and then heard no more of
//
// Split brain. Members that were cut off from one another must not train on as two jobs. A group
// may form the next roster only where it speaks for the newest formed roster that any of it knows,
// and for every attempt any of it knows that is newer. It speaks for a roster
//
//   - with more than half of its members;
//   - with exactly half, the first of them included;
//   - with any at all, where every other one was seen to end: its machine answers that nobody
//     listens at its address, and a member listens there as long as it lives; a firewall can answer
//     so too, and is believed only of this machine's own addresses, or where the member's machine
//     has closed its connection besides; and this so soon after the last contact with it that it
//     cannot have gone on without this group, which it would have waited for. A member that was
//     stopped, and finds the others gone as it wakes, does not know what they have done meanwhile,
//     and leaves it at that.
//
// Two groups that each hold a majority of one roster share a member, and that one has agreed to the
// earlier of the two new rosters, so the later one's leader knows of it and needs its majority as
// well: this is dynamic voting with ambiguous attempts (Yeger-Lotem, Keidar and Dolev, "Dynamic
// voting for consistent primary components", PODC 1997). With --min-workers above half of the
// workers no group needs the third rule. What the third rule leaves open takes three faults at
// once: members are cut off, the others form a roster with a newcomer, and of that one all but
// the newcomer end.
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
  Address address; ///< Where it listens.

  std::string name() const; ///< "host-b, pid 123"
};

struct Roster {
  std::uint64_t number = 0; ///< 0: none.
  std::vector<Member> members;

  const Member* find(std::uint64_t id) const;
};

using MemberIds = std::set<std::uint64_t>;

/// Whether `present` speaks for `roster`, of which `ended` are known to have ended.
bool speaks_for(const Roster& roster, const MemberIds& present, const MemberIds& ended);

/// Members of any of the rosters that are not `known`, each once. Whoever is to speak for all of
/// them has to find out how these stand: one may be in an older roster alone.
std::vector<Member> others_of(std::span<const Roster* const> rosters, MemberIds known);

/// What a member says of itself as it comes to a meeting.
struct MemberReport {
  Member self;
  std::int32_t place = 0;         ///< Its launcher's RANK: the order of newcomers.
  std::uint64_t state_number = 0; ///< Of the roster under which its training state was shared last.
  std::int64_t step = -1;         ///< Of that state; -1: it has none.
  Roster formed;                  ///< The newest it knows of.
  std::vector<Roster> attempts;   ///< Newer than that.
};

/// What a leader proposes.
struct Proposal {
  Roster roster;
  std::int32_t source = 0; ///< The rank that has the newest state.
  std::int64_t step = -1;  ///< Of that state; -1: nobody has one.
};

/// The wire's form. Reading throws LinkError where the bytes are no such thing.
std::vector<std::byte> to_bytes(const MemberReport& report);
std::vector<std::byte> to_bytes(const Proposal& proposal);
MemberReport read_report(std::span<const std::byte> bytes);
Proposal read_proposal(std::span<const std::byte> bytes);

} // namespace trainer
