#include "backends/ssh/gathering.h"

#include "backends/ssh/delivery.h"
#include "backends/ssh/fan_out.h"
#include "backends/ssh/host_survey.h"
#include "backends/ssh/turned_away.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <thread>
#include <tuple>
#include <utility>

namespace dtrain::ssh {

namespace {

using Clock = Link::Clock;

constexpr std::size_t k_most_connecting_a_host =
    8; ///< sshd turns some away beyond 10 (MaxStartups).
constexpr std::size_t k_most_deliveries = 8;
constexpr std::chrono::seconds k_answer_patience{20};
constexpr std::chrono::minutes k_work_patience{10}; ///< For what keeps its own time.
constexpr int k_round_ms = 1000;

std::string why(Link& link) {
  const auto loss = link.loss();
  return loss.empty() ? "it answers, but runs no sh for us: does ssh HOST true work?" : loss;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

} // namespace

Links Gathering::connect(const std::vector<Wanted>& wanted) {
  Links links;
  open(wanted, links);
  refuse_bad();
  deliver();
  refuse_bad();
  if (!cargo_.parts.empty()) {
    ask_all(in_order_, "unpack\n", k_work_patience);
  }
  try_ways();
  refuse_bad();
  if (!cargo_.empty()) {
    std::vector<Link*> all;
    for (const auto& [rank, link] : links) {
      all.push_back(link.get());
    }
    ask_all(all, "look\n", k_answer_patience);
    refuse_bad();
  }
  return links;
}

void Gathering::open(const std::vector<Wanted>& wanted, Links& links) {
  std::vector<Link*> asked;
  auto next = wanted.begin();
  while (next != wanted.end() || !asked.empty()) {
    while (next != wanted.end() && asked.size() < k_most_connecting &&
           std::count_if(asked.begin(), asked.end(), [&](const Link* link) {
             return link->host() == next->host;
           }) < static_cast<std::ptrdiff_t>(k_most_connecting_a_host)) {
      if (!reasons_.contains(next->host)) { // Else one refusal is enough.
        auto question = next->question;
        const bool leads = !leaders_.contains(next->host);
        if (leads) {
          question.parts = fmt::format("{}", fmt::join(cargo_.parts, " "));
          question.cargo = cargo_.empty() ? "" : question.parts + " " + cargo_.parcel;
        } else {
          question.slots = 0; // One answer is enough.
        }
        auto& link = links[next->rank] = std::make_unique<Link>(next->host, question);
        asked.push_back(link.get());
        if (leads) {
          leaders_[next->host] = link.get();
          in_order_.push_back(link.get());
        }
      }
      ++next;
    }
    await(asked, k_answer_patience);
  }
  for (auto* link : in_order_) {
    if (const auto excuse = clock_excuse(link->facts().ahead); !excuse.empty()) {
      reasons_.emplace(link->host(), excuse);
    }
  }
  compare();
}

/// On another machine a loopback address is that one's own, and so is one that two have: of a
/// bridge for containers, say. Who answers there is not this host, though somebody does.
void Gathering::compare() {
  for (const auto* link : in_order_) {
    const auto& facts = link->facts();
    const auto other = std::find_if(in_order_.begin(), in_order_.end(), [&](const Link* each) {
      return each->is_ready() && each->facts().machine != facts.machine &&
             (is_loopback(facts.address) || each->facts().address == facts.address);
    });
    if (!link->is_ready() || facts.address.empty() || other == in_order_.end()) {
      continue;
    }
    reasons_.emplace(
        link->host(),
        is_loopback(facts.address)
            ? fmt::format("has the address {}, at which {} reaches only itself: name it as other "
                          "hosts know it, or a network that they share (--interface)",
                          facts.address, (*other)->host())
            : fmt::format("has the address {}, which {} has too: name a network that they share "
                          "(--interface)",
                          facts.address, (*other)->host()));
  }
}

/// Until one at least has answered, and is not among those that are asked any more.
void Gathering::await(std::vector<Link*>& asked, std::chrono::seconds patience) {
  const auto whole = asked.size();
  while (!asked.empty() && asked.size() == whole) {
    std::vector<pollfd> descriptors;
    auto until = Clock::time_point::max();
    for (const auto* link : asked) {
      descriptors.push_back({link->out(), POLLIN, 0});
      descriptors.push_back({link->has_unsent() ? link->in() : -1, POLLOUT, 0});
      until = std::min(until, link->asked() + patience);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    poll(descriptors.data(), descriptors.size(),
         static_cast<int>(std::clamp<std::int64_t>(left, 0, k_round_ms)));
    meanwhile_();
    std::erase_if(asked, [&](Link* link) {
      link->flush(); // Where it is closed, so is its output.
      const bool goes_on = link->read_answer();
      if (link->is_ready()) {
        if (!link->facts().lacks.empty()) {
          reasons_.emplace(link->host(), "lacks " + link->facts().lacks.front());
        }
      } else if (!goes_on) {
        const auto reason = why(*link);
        if (link->tries_again()) {
          return false;
        }
        reasons_.emplace(link->host(), reason);
      } else if (Clock::now() >= link->asked() + patience) {
        reasons_.emplace(link->host(), fmt::format("did not answer within {} s", patience.count()));
      } else {
        return false;
      }
      return true;
    });
  }
}

void Gathering::deliver() {
  auto lacking = in_order_;
  std::erase_if(lacking, [](const Link* link) { return link->facts().wants.empty(); });
  for (int tries = 0; !lacking.empty(); ++tries) {
    if (tries > 0) {
      std::this_thread::sleep_for(pause_before(tries));
      meanwhile_();
    }
    lacking = deliver_to(lacking, tries == k_most_tries);
  }
}

/// Those that are to be tried again.
std::vector<Link*> Gathering::deliver_to(const std::vector<Link*>& lacking, bool last) {
  std::list<std::pair<Link*, Delivery>> under_way;
  std::vector<Link*> again;
  auto next = lacking.begin();
  while (next != lacking.end() || !under_way.empty()) {
    for (; next != lacking.end() && under_way.size() < k_most_deliveries; ++next) {
      under_way.emplace_back(
          std::piecewise_construct, std::forward_as_tuple(*next),
          std::forward_as_tuple((*next)->host(), cargo_, (*next)->facts().wants));
    }
    std::vector<pollfd> descriptors;
    for (const auto& [link, delivery] : under_way) {
      descriptors.push_back({delivery.out(), POLLIN, 0});
    }
    poll(descriptors.data(), descriptors.size(), k_round_ms);
    meanwhile_();
    under_way.remove_if([&](auto& entry) {
      auto& [link, delivery] = entry;
      if (!delivery.advance()) {
        return false;
      }
      const auto failure = delivery.failure();
      if (!failure.empty() && delivery.was_turned_away() && !last) {
        again.push_back(link);
      } else if (!failure.empty()) {
        reasons_.emplace(delivery.host(), failure);
      }
      return true;
    });
  }
  return again;
}

void Gathering::ask_all(const std::vector<Link*>& links, const std::string& commands,
                        std::chrono::seconds patience) {
  auto asked = links;
  for (auto* link : asked) {
    link->ask(commands);
  }
  while (!asked.empty()) {
    await(asked, patience);
  }
}

/// Each tries the way to the next, around the ring that they may form, and to the first. A few at a
/// time: an sshd turns people away while many are connected that have not logged in. Once one has
/// failed that does not matter.
void Gathering::try_ways() {
  std::vector<Link*> asked;
  for (std::size_t i = 0; i < in_order_.size() || !asked.empty();) {
    const auto most = reasons_.empty() ? k_most_connecting_a_host : in_order_.size();
    for (; i < in_order_.size() && asked.size() < most; ++i) {
      std::string commands;
      std::set<std::size_t> others{0, (i + 1) % in_order_.size()};
      others.erase(i);
      for (const auto other : others) {
        const auto& facts = in_order_[other]->facts();
        commands +=
            fmt::format("reach {} {} {}\n", facts.address, facts.sshd, in_order_[other]->host());
      }
      for (std::size_t other = 1; launches_ && i == 0 && other < in_order_.size(); ++other) {
        commands += fmt::format("enters {} {}\n", in_order_[other]->facts().address,
                                in_order_[other]->host());
      }
      if (!commands.empty()) {
        in_order_[i]->ask(commands);
        asked.push_back(in_order_[i]);
      }
    }
    await(asked, k_work_patience);
  }
}

/// "2 of 3 hosts cannot be used:" and a line for each.
void Gathering::refuse_bad() const {
  if (reasons_.empty()) {
    return;
  }
  std::size_t width = 0;
  for (const auto& [host, reason] : reasons_) {
    width = std::max(width, host.size());
  }
  std::string table;
  std::set<std::string> names;
  for (const auto& [host, reason] : reasons_) {
    table += fmt::format("\n  {:{}}  {}", host, width, reason);
    names.insert(host);
  }
  throw UnusableHosts(
      fmt::format("{} of {} hosts cannot be used:{}", reasons_.size(), leaders_.size(), table),
      std::move(names));
}

} // namespace dtrain::ssh
