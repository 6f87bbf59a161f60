#include "trainer/job/host_group.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

namespace trainer {
namespace {

struct HostId {
  std::array<char, 40> text{};
};

/// The boot id is different on every host and after every boot; empty where /proc has none.
HostId identify_host(const std::string& given) {
  HostId id;
  if (!given.empty()) {
    std::copy_n(given.begin(), std::min(given.size(), id.text.size() - 1), id.text.begin());
    return id;
  }
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(id.text.data(), static_cast<std::streamsize>(id.text.size() - 1));
  return id;
}

} // namespace

HostGroup find_host_group(Star& star, const std::string& host_identity,
                          const std::function<std::size_t(int members)>& file_size) {
  const auto self = static_cast<std::size_t>(star.rank());
  const std::vector<HostId> ids = star.exchange(identify_host(host_identity));
  const auto leader_of = [&](std::size_t rank) {
    const auto same = std::find_if(ids.begin(), ids.end(),
                                   [&](const HostId& id) { return id.text == ids[rank].text; });
    return static_cast<std::size_t>(same - ids.begin());
  };
  const auto has_company = [&](std::size_t rank) {
    return ids[rank].text[0] != '\0' &&
           std::count_if(ids.begin(), ids.end(),
                         [&](const HostId& id) { return id.text == ids[rank].text; }) > 1;
  };

  HostGroup group;
  SharedFile::Ticket offered;
  const std::size_t leader = leader_of(self);
  if (leader == self && has_company(self)) {
    group.file = SharedFile::create();
    offered = group.file.ticket();
  }
  const std::vector<SharedFile::Ticket> tickets = star.exchange(offered);
  if (leader != self && has_company(self)) {
    group.file = SharedFile::open(tickets[leader]);
  }
  const std::int32_t joined = group.file ? static_cast<std::int32_t>(leader) : star.rank();
  const std::vector<std::int32_t> groups = star.exchange(joined);
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    if (groups[rank] == groups[self]) {
      group.members.push_back(static_cast<int>(rank));
    }
  }
  group.leader_of.assign(groups.begin(), groups.end());
  const std::set<std::int32_t> leaders(groups.begin(), groups.end());
  group.leaders.assign(leaders.begin(), leaders.end());
  if (group.members.size() == 1) {
    group.file = {};
  } else if (leader == self) {
    group.file.grow(file_size(static_cast<int>(group.members.size())));
  }
  star.exchange(std::int32_t{1}); // No rank maps it before it is that long.
  return group;
}

} // namespace trainer
