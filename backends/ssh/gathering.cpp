#include "backends/ssh/gathering.h"

#include "backends/ssh/delivery.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <list>

namespace dtrain::ssh {

namespace {

using Clock = Link::Clock;

constexpr std::size_t k_most_connecting = 32;
constexpr int k_most_connecting_a_host = 8; ///< sshd turns some away beyond 10 (MaxStartups).
constexpr std::size_t k_most_deliveries = 8;
constexpr std::chrono::seconds k_answer_patience{20};
constexpr std::chrono::minutes k_unpack_patience{10};
constexpr std::int64_t k_most_ahead = 60; ///< Seconds: make and TLS go wrong by then.
constexpr int k_round_ms = 1000;

std::string why(Link& link) {
  const auto loss = link.loss();
  return loss.empty() ? "it answers, but runs no sh for us: does ssh HOST true work?" : loss;
}

std::string clock_excuse(std::int64_t ahead) {
  return std::abs(ahead) <= k_most_ahead
             ? ""
             : fmt::format("its clock is {} s {} this machine's: set it (NTP)", std::abs(ahead),
                           ahead > 0 ? "ahead of" : "behind");
}

} // namespace

Links Gathering::connect(const std::vector<Wanted>& wanted) {
  Links links;
  open(wanted, links);
  refuse_bad();
  deliver();
  refuse_bad();
  prepare();
  refuse_bad();
  if (!cargo_.empty()) {
    std::vector<Link*> asked;
    for (const auto& [rank, link] : links) {
      link->ask("look\n");
      asked.push_back(link.get());
    }
    while (!asked.empty()) {
      await(asked, k_answer_patience);
    }
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
           }) < k_most_connecting_a_host) {
      if (!reasons_.contains(next->host)) { // Else one refusal is enough.
        auto question = next->question;
        const bool leads = !leaders_.contains(next->host);
        if (leads) {
          question.parts = fmt::format("{}", fmt::join(cargo_.parts, " "));
          question.cargo = question.parts + " " + cargo_.parcel;
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
        reasons_.emplace(link->host(), why(*link));
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
  std::list<Delivery> under_way;
  auto next = in_order_.begin();
  while (next != in_order_.end() || !under_way.empty()) {
    for (; next != in_order_.end() && under_way.size() < k_most_deliveries; ++next) {
      if (!(*next)->facts().wants.empty()) {
        under_way.emplace_back((*next)->host(), cargo_, (*next)->facts().wants);
      }
    }
    std::vector<pollfd> descriptors;
    for (const auto& delivery : under_way) {
      descriptors.push_back({delivery.out(), POLLIN, 0});
    }
    poll(descriptors.data(), descriptors.size(), under_way.empty() ? 0 : k_round_ms);
    meanwhile_();
    for (auto each = under_way.begin(); each != under_way.end();) {
      if (!each->advance()) {
        ++each;
        continue;
      }
      if (const auto failure = each->failure(); !failure.empty()) {
        reasons_.emplace(each->host(), failure);
      }
      each = under_way.erase(each);
    }
  }
}

/// Each tries the way to the next, around the ring that they may form, and to the first.
void Gathering::prepare() {
  std::vector<Link*> asked;
  for (std::size_t i = 0; i < in_order_.size(); ++i) {
    std::string commands = cargo_.parts.empty() ? "" : "unpack\n";
    std::set<std::size_t> others{0, (i + 1) % in_order_.size()};
    others.erase(i);
    for (const auto other : others) {
      const auto& facts = in_order_[other]->facts();
      commands +=
          fmt::format("reach {} {} {}\n", facts.address, facts.sshd, in_order_[other]->host());
    }
    if (!commands.empty()) {
      in_order_[i]->ask(commands);
      asked.push_back(in_order_[i]);
    }
  }
  while (!asked.empty()) {
    await(asked, k_unpack_patience);
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
  for (const auto& [host, reason] : reasons_) {
    table += fmt::format("\n  {:{}}  {}", host, width, reason);
  }
  throw EngineError(
      fmt::format("{} of {} hosts cannot be used:{}", reasons_.size(), leaders_.size(), table));
}

} // namespace dtrain::ssh
