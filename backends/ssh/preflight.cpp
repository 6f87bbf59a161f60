#include "backends/ssh/preflight.h"

#include "backends/ssh/fan_out.h"
#include "backends/ssh/host_survey.h"
#include "backends/ssh/turned_away.h"
#include "backends/ssh/upload.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <utility>

namespace dtrain::ssh {

namespace {

using Clock = Connections::Clock;

constexpr std::size_t k_most_uploads = 8;
constexpr std::size_t k_most_ways = 8; ///< sshd turns some away beyond 10 (MaxStartups).
constexpr std::chrono::minutes k_work_timeout{10}; ///< For scripts with time limits of their own.
constexpr std::chrono::milliseconds k_round{1000};

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Precedes each question: variables that preflight.sh reads, and the script itself.
std::string preamble(const HostQuestion& question, const Payload& payload) {
  std::string lines;
  for (const auto& each : question.data) {
    lines += each + "\n";
  }
  const auto data = lines;
  const auto digests = payload.empty()
                           ? std::string()
                           : fmt::format("{} {}", fmt::join(payload.parts, " "), payload.bundle);
  auto text = fmt::format("slots={}\nwanted={}\ngpus={}\n", question.host.slots, question.wanted,
                          question.gpus.empty() ? 0 : 1);
  for (const auto& [name, value] :
       {std::pair("folder", &question.folder), std::pair("path", &question.path),
        std::pair("interface", &question.interface), std::pair("payload", &digests),
        std::pair("data", &data)}) {
    text += fmt::format("{}={}\n", name, quote_sh(*value));
  }
  for (const auto* part : {"ssh/sums.sh", "ssh/preflight.sh"}) {
    text += builtin_template(part).text;
  }
  return text;
}

std::string look_for(const HostQuestion& question, const Payload& payload) {
  std::string line = "look";
  for (const auto& program : question.programs) {
    line += " " + quote_sh(program);
  }
  line += "\n";
  if (question.runs_bundle) {
    line += fmt::format("starts \"$cache\"/{}/{}\n", payload.bundle, k_trainer_file);
  }
  return line;
}

} // namespace

std::string Preflight::script_of(const HostQuestion& question, const std::string& lines) const {
  return preamble(question, payload_) + "begin() {\n" + lines + "}\n";
}

void HostsKnown::tell(const std::string& what) {
  if (std::find(left_out.begin(), left_out.end(), what) == left_out.end()) {
    left_out.push_back(what);
  }
}

/// Answers that have not come by now are not needed.
Preflight::~Preflight() {
  for (const auto key : asked_) {
    connections_.forget(key);
  }
}

RankId Preflight::expect(RankId key) {
  asked_.insert(key);
  return key;
}

Connections::Answer Preflight::take_answer(RankId key) {
  asked_.erase(key);
  return connections_.take_answer(key);
}

/// Waits until a host answers, or one of the others is readable.
void Preflight::wait(std::chrono::milliseconds most, const std::vector<int>& others) {
  std::vector<pollfd> descriptors{{connections_.events(), POLLIN, 0}};
  for (const int other : others) {
    descriptors.push_back({other, POLLIN, 0});
  }
  poll(descriptors.data(), descriptors.size(), static_cast<int>(most.count()));
  connections_.advance();
  if (stops_()) {
    throw WaitStopped();
  }
}

void Preflight::run(const std::vector<HostQuestion>& questions) {
  survey(questions);
  leave_out_faulty(questions);
  compare(questions);
  refuse_bad(questions.size());
  upload(questions);
  refuse_bad(questions.size());
  std::vector<std::pair<std::string, std::string>> scripts;
  if (!payload_.parts.empty()) {
    for (const auto& question : questions) {
      scripts.emplace_back(
          question.host.name,
          script_of(question, fmt::format("unpack {}\n", fmt::join(payload_.parts, " "))));
    }
    ask_all(scripts, k_work_timeout);
  }
  leave_out_measured(questions);
  refuse_bad(questions.size());
  try_ways(questions);
  refuse_bad(questions.size());
  if (!payload_.empty()) {
    scripts.clear();
    for (const auto& question : questions) {
      scripts.emplace_back(question.host.name, script_of(question, look_for(question, payload_)));
    }
    ask_all(scripts, k_work_timeout);
    refuse_bad(questions.size());
  }
}

/// Waits until all have answered, or that time is over.
void Preflight::await(const std::vector<RankId>& keys, std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto are_there = [&] {
    return std::all_of(keys.begin(), keys.end(), [&](RankId key) { return is_answered(key); });
  };
  while (!are_there() && Clock::now() < deadline) {
    wait(k_round);
  }
}

/// Some at a time. One that turns us away is tried again in a while.
void Preflight::survey(const std::vector<HostQuestion>& questions) {
  struct Asked {
    const HostQuestion* question;
    int tries = 0;
    Clock::time_point opens = Clock::now();
    bool is_asked = false;
    /// This call opened the connection; otherwise heartbeats tell whether the host is there.
    bool is_new = false;
    RankId survey = 0;
    std::vector<std::pair<std::string, RankId>> claims = {};
  };
  std::list<Asked> asked;
  auto next = questions.begin();
  while (next != questions.end() || !asked.empty()) {
    for (; next != questions.end() && asked.size() < k_most_connecting; ++next) {
      asked.push_back({.question = &*next});
    }
    for (auto& each : asked) {
      const auto& question = *each.question;
      if (each.is_asked || Clock::now() < each.opens) {
        continue;
      }
      if (connections_.find(question.host.name) == nullptr) {
        connections_.open(question.host, question.number);
        each.is_new = true;
      }
      each.is_asked = true;
      each.opens = Clock::now();
      each.survey = expect(connections_.ask(
          question.host.name,
          script_of(question,
                    "survey\n" + (payload_.empty() ? look_for(question, payload_) : ""))));
      ask_health(question);
      for (const auto& [instance, gpus] : question.gpus) {
        each.claims.emplace_back(instance, expect(connections_.claim(question.host.name, gpus)));
      }
    }
    constexpr std::chrono::milliseconds k_brief{100}; // Until a paused one is tried again.
    const bool pauses =
        std::any_of(asked.begin(), asked.end(), [](const Asked& each) { return !each.is_asked; });
    wait(pauses ? k_brief : k_round);
    asked.remove_if([&](Asked& each) {
      const auto& question = *each.question;
      const std::chrono::seconds timeout = each.is_new ? k_answer_timeout : k_work_timeout;
      const bool has_answered =
          each.is_asked && is_answered(each.survey) &&
          std::all_of(each.claims.begin(), each.claims.end(),
                      [&](const auto& claim) { return is_answered(claim.second); });
      if (!has_answered && (!each.is_asked || Clock::now() < each.opens + timeout)) {
        return false;
      }
      auto answer = take_answer(each.survey);
      auto found = read_host_facts(answer.text);
      auto reason = answer.failure;
      if (!has_answered) {
        reason = fmt::format("did not answer within {} s", timeout.count());
      } else if (reason.empty() && !found.lacks.empty()) {
        reason = found.lacks.front();
      } else if (reason.empty()) {
        reason = clock_excuse(found.ahead);
      }
      for (const auto& [instance, key] : each.claims) {
        if (!is_answered(key)) {
          continue; // It has been released.
        }
        const auto claim = take_answer(key);
        if (claim.failure.empty()) {
          const auto gpus = std::find_if(
              question.gpus.begin(), question.gpus.end(),
              [&, &name = instance](const auto& wanted) { return wanted.first == name; });
          known_.claims[instance] = {question.host.name, key, gpus->second, claim.text};
        } else if (reason.empty()) {
          reason = claim.failure;
        }
      }
      const auto* loss = connections_.loss(question.host.name);
      if (connections_.find(question.host.name) == nullptr && loss != nullptr &&
          is_turned_away(loss->said) && each.tries < k_most_tries) {
        ++each.tries;
        each.is_asked = false;
        each.opens = Clock::now() + pause_before(each.tries);
        each.claims.clear();
        return false;
      }
      if (!reason.empty()) {
        reasons_.emplace(question.host.name, reason);
      }
      known_.facts[question.host.name] = std::move(found);
      return true;
    });
  }
}

/// On another machine a loopback address is that machine's own, and so is an address that two hosts
/// have, such as a bridge's for containers: something may answer there, but not this host.
void Preflight::compare(const std::vector<HostQuestion>& questions) {
  for (const auto& question : questions) {
    const auto& own = known_.facts.at(question.host.name);
    const auto other =
        std::find_if(questions.begin(), questions.end(), [&](const HostQuestion& each) {
          const auto& its = known_.facts.at(each.host.name);
          return !its.machine.empty() && its.machine != own.machine &&
                 (is_loopback(own.address) || its.address == own.address);
        });
    if (own.machine.empty() || own.address.empty() || other == questions.end()) {
      continue;
    }
    reasons_.emplace(
        question.host.name,
        is_loopback(own.address)
            ? fmt::format(
                  "has the loopback address {}, which {} cannot reach: list the host by a name "
                  "that other hosts resolve, or set --interface to a network that they share",
                  own.address, other->host.name)
            : fmt::format(
                  "has the same address {} as {}: set --interface to a network that they share",
                  own.address, other->host.name));
  }
}

void Preflight::upload(const std::vector<HostQuestion>& questions) {
  std::list<Upload> under_way;
  auto next = questions.begin();
  while (true) {
    for (; next != questions.end() && under_way.size() < k_most_uploads; ++next) {
      if (const auto& wants = known_.facts.at(next->host.name).wants; !wants.empty()) {
        under_way.emplace_back(connections_, next->host.name, payload_, wants);
      }
    }
    if (under_way.empty()) {
      break;
    }
    std::vector<int> archives;
    for (const auto& each : under_way) {
      archives.push_back(each.out());
    }
    wait(k_round, archives);
    under_way.remove_if([&](Upload& each) {
      if (!each.advance()) {
        return false;
      }
      if (!each.failure().empty()) {
        reasons_.emplace(each.host(), each.failure());
      }
      return true;
    });
  }
}

/// Asks all at once, and waits until each has answered.
void Preflight::ask_all(const std::vector<std::pair<std::string, std::string>>& scripts,
                        std::chrono::seconds timeout) {
  std::vector<RankId> asked;
  asked.reserve(scripts.size());
  for (const auto& [host, script] : scripts) {
    asked.push_back(expect(connections_.ask(host, script)));
  }
  await(asked, timeout);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& host = scripts[i].first;
    const auto answer = take_answer(asked[i]);
    const auto found = read_host_facts(answer.text);
    if (!answer.is_there) {
      reasons_.emplace(host, fmt::format("did not answer within {} s", timeout.count()));
    } else if (!answer.failure.empty()) {
      reasons_.emplace(host, answer.failure);
    } else if (!found.lacks.empty()) {
      reasons_.emplace(host, found.lacks.front());
    }
  }
}

/// Each host tries to connect to the next one, along the ring that they may form, and to the first.
/// Only a few at a time: sshd refuses connections while many are not logged in yet.
void Preflight::try_ways(const std::vector<HostQuestion>& questions) {
  for (std::size_t first = 0; first < questions.size(); first += k_most_ways) {
    std::vector<std::pair<std::string, std::string>> scripts;
    for (auto i = first; i < std::min(first + k_most_ways, questions.size()); ++i) {
      std::string lines;
      std::set<std::size_t> others{0, (i + 1) % questions.size()};
      others.erase(i);
      for (const auto other : others) {
        const auto& its = known_.facts.at(questions[other].host.name);
        lines += fmt::format("reach {} {} {} &\n", quote_sh(its.address), quote_sh(its.sshd),
                             quote_sh(questions[other].host.name));
      }
      for (std::size_t other = 1; launches_ && i == 0 && other < questions.size(); ++other) {
        lines += fmt::format("enters {} {} &\n",
                             quote_sh(known_.facts.at(questions[other].host.name).address),
                             quote_sh(questions[other].host.name));
      }
      if (!lines.empty()) {
        scripts.emplace_back(questions[i].host.name, script_of(questions[i], lines + "wait\n"));
      }
    }
    ask_all(scripts, k_work_timeout);
  }
}

/// "2 of 3 hosts cannot be used:" and a line for each.
void Preflight::refuse_bad(std::size_t hosts) const {
  if (is_good()) {
    return;
  }
  std::set<std::string> names;
  for (const auto& [host, reason] : reasons_) {
    names.insert(host);
  }
  auto reasons = reasons_;
  for (const auto& [instance, place] : faulty_) {
    reasons.emplace(place.host, fmt::format("{}; {} (--check-gpus=off skips the check)", place.lack,
                                            place.faults));
  }
  std::size_t width = 0;
  for (const auto& [host, reason] : reasons) {
    width = std::max(width, host.size());
  }
  std::string table;
  for (const auto& [host, reason] : reasons) {
    table += fmt::format("\n  {:{}}  {}", host, width, reason);
  }
  throw UnusableHosts(fmt::format("{} of {} hosts cannot be used:{}", reasons.size(), hosts, table),
                      std::move(names), faulty_);
}

} // namespace dtrain::ssh
