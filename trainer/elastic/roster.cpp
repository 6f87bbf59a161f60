#include "trainer/elastic/roster.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr std::uint32_t k_most_members = 4096;
constexpr std::uint32_t k_most_attempts_read = 64;

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = bytes_of(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put(const Roster& roster) {
    put(roster.number);
    put(static_cast<std::uint32_t>(roster.members.size()));
    for (const Member& member : roster.members) {
      put(member);
    }
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class RosterReader {
 public:
  explicit RosterReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (bytes_.size() < sizeof value) {
      throw LinkError("its message is too short");
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::uint32_t count(std::uint32_t most) {
    const auto number = get<std::uint32_t>();
    if (number > most) {
      throw LinkError("its message is too long");
    }
    return number;
  }
  Member member() {
    auto member = get<Member>();
    if (member.address.length > sizeof member.address.storage) {
      throw LinkError("it sent no address");
    }
    member.host.back() = '\0';
    std::replace_if(
        member.host.begin(), member.host.end(),
        [](char c) { return c != '\0' && (c < ' ' || c > '~'); }, '?');
    return member;
  }
  Roster roster() {
    Roster roster;
    roster.number = get<std::uint64_t>();
    for (auto left = count(k_most_members); left > 0; --left) {
      roster.members.push_back(member());
    }
    return roster;
  }

 private:
  std::span<const std::byte> bytes_;
};

} // namespace

std::string Member::name() const { return fmt::format("{}, pid {}", host.data(), pid); }

const Member* Roster::find(std::uint64_t id) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const Member& member) { return member.id == id; });
  return found == members.end() ? nullptr : &*found;
}

bool has_quorum_of(const Roster& roster, const MemberIds& present, const MemberIds& ended) {
  std::size_t here = 0;
  std::size_t unknown = 0;
  for (const Member& member : roster.members) {
    if (present.contains(member.id)) {
      ++here;
    } else if (!ended.contains(member.id)) {
      ++unknown;
    }
  }
  const std::size_t size = roster.members.size();
  return unknown == 0 || 2 * here > size ||
         (2 * here == size && present.contains(roster.members.front().id));
}

std::vector<Member> unknown_members(std::span<const Roster* const> rosters, MemberIds known) {
  std::vector<Member> others;
  for (const Roster* roster : rosters) {
    for (const Member& member : roster->members) {
      if (known.insert(member.id).second) {
        others.push_back(member);
      }
    }
  }
  return others;
}

std::vector<std::byte> to_bytes(const MemberReport& report) {
  Writer writer;
  writer.put(report.self);
  writer.put(report.place);
  writer.put(report.state_number);
  writer.put(report.step);
  writer.put(report.formed);
  writer.put(static_cast<std::uint32_t>(report.attempts.size()));
  for (const Roster& attempt : report.attempts) {
    writer.put(attempt);
  }
  return writer.take();
}

std::vector<std::byte> to_bytes(const Proposal& proposal) {
  Writer writer;
  writer.put(proposal.roster);
  writer.put(proposal.source);
  writer.put(proposal.step);
  return writer.take();
}

MemberReport read_report(std::span<const std::byte> bytes) {
  RosterReader reader(bytes);
  MemberReport report;
  report.self = reader.member();
  report.place = reader.get<std::int32_t>();
  report.state_number = reader.get<std::uint64_t>();
  report.step = reader.get<std::int64_t>();
  report.formed = reader.roster();
  for (auto left = reader.count(k_most_attempts_read); left > 0; --left) {
    report.attempts.push_back(reader.roster());
  }
  return report;
}

Proposal read_proposal(std::span<const std::byte> bytes) {
  RosterReader reader(bytes);
  Proposal proposal;
  proposal.roster = reader.roster();
  proposal.source = reader.get<std::int32_t>();
  proposal.step = reader.get<std::int64_t>();
  if (proposal.roster.members.empty() || proposal.source < 0 ||
      proposal.source >= static_cast<std::int32_t>(proposal.roster.members.size())) {
    throw LinkError("it proposed no roster");
  }
  return proposal;
}

} // namespace trainer
