#include "trainer/elastic/roster.h"

#include <doctest/doctest.h>

#include "trainer/random.h"

using namespace trainer;

namespace {

Roster roster_of(const std::vector<std::uint64_t>& ids) {
  Roster roster;
  roster.number = 7;
  for (const auto id : ids) {
    Member member;
    member.id = id;
    member.pid = static_cast<std::int64_t>(10 * id);
    roster.members.push_back(member);
  }
  return roster;
}

} // namespace

TEST_CASE("of a divided roster at most one side speaks for it") {
  for (int size = 1; size <= 7; ++size) {
    Roster roster;
    for (int i = 0; i < size; ++i) {
      roster.members.push_back(roster_of({static_cast<std::uint64_t>(i) + 1}).members[0]);
    }
    for (int side = 0; side < 1 << size; ++side) {
      MemberIds left;
      MemberIds right;
      for (int i = 0; i < size; ++i) {
        ((side >> i & 1) == 0 ? left : right).insert(static_cast<std::uint64_t>(i) + 1);
      }
      CHECK(has_quorum_of(roster, left, {}) != has_quorum_of(roster, right, {}));
    }
  }
}

TEST_CASE("those that are left of a roster speak for it once the others are known to have ended") {
  const Roster roster = roster_of({1, 2, 3, 4, 5});
  CHECK_FALSE(has_quorum_of(roster, {5}, {1, 2, 3}));
  CHECK(has_quorum_of(roster, {5}, {1, 2, 3, 4}));
  CHECK_FALSE(has_quorum_of(roster, {4, 5}, {2, 3}));
}

TEST_CASE("members of every roster are asked after, those of an older one alone too") {
  const Roster formed = roster_of({1, 2, 3});
  const Roster attempt = roster_of({1, 2, 4});
  const std::vector<const Roster*> all = {&formed, &attempt};
  std::vector<std::uint64_t> ids;
  for (const Member& member : unknown_members(all, {2})) {
    ids.push_back(member.id);
  }
  CHECK(ids == std::vector<std::uint64_t>{1, 3, 4});
}

TEST_CASE("a report and a proposal arrive as they were sent") {
  MemberReport report;
  report.self = roster_of({9}).members[0];
  report.place = 3;
  report.state_number = 6;
  report.step = 120;
  report.formed = roster_of({1, 2});
  report.attempts = {roster_of({1}), roster_of({2, 9})};
  const MemberReport read = read_report(to_bytes(report));
  CHECK(read.self.id == 9);
  CHECK(read.place == 3);
  CHECK(read.state_number == 6);
  CHECK(read.step == 120);
  CHECK(read.formed.number == 7);
  REQUIRE(read.attempts.size() == 2);
  CHECK(read.attempts[1].find(9) != nullptr);
  CHECK(read.attempts[1].find(1) == nullptr);

  const Proposal proposal = read_proposal(to_bytes(Proposal{roster_of({4, 5}), 1, 30}));
  CHECK(proposal.source == 1);
  CHECK(proposal.step == 30);
  CHECK(proposal.roster.members[1].pid == 50);
}

TEST_CASE("what is cut short or makes no sense is refused, whatever its bytes") {
  MemberReport report;
  report.formed = roster_of({1, 2});
  const auto whole = to_bytes(report);
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    CHECK_THROWS_AS(read_report(std::span(whole).first(length)), LinkError);
  }
  CHECK_THROWS_AS(read_proposal(to_bytes(Proposal{roster_of({4}), 1, 30})), LinkError);
  CHECK_THROWS_AS(read_proposal(to_bytes(Proposal{roster_of({}), 0, 30})), LinkError);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    auto bytes = whole;
    const auto random = random_at(1, RandomStream::shuffle, 0, i);
    bytes[random[0] % bytes.size()] = static_cast<std::byte>(random[1]);
    bytes[random[2] % bytes.size()] = static_cast<std::byte>(random[3]);
    try {
      (void)read_report(bytes);
    } catch (const LinkError&) {
      continue; // As it should be.
    }
  }
}
