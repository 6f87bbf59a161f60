#include "backends/local/rank_gpus.h"

#include "backends/local/gpu_health.h"
#include "backends/local/gpu_measurement.h"
#include "backends/local/gpus.h"
#include "backends/supervised/gang/devices.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dtrain {

namespace {

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end()) {
    texts.push_back(text);
  }
}

std::vector<std::string> faults_of(std::vector<std::string> devices,
                                   const std::vector<std::string>& more,
                                   const std::function<std::string(const std::string&)>& fault_of) {
  devices.insert(devices.end(), more.begin(), more.end());
  std::vector<std::string> faults;
  for (const auto& device : devices) {
    add_once(faults, fault_of(device));
  }
  return faults;
}

} // namespace

bool RankGpus::claim(const GangPlan& plan) {
  std::vector<std::vector<std::string>> ranks;
  for (const auto& rank : plan.ranks) {
    ranks.push_back(own_gpus(rank).value_or(std::vector<std::string>()));
  }
  auto claims = claim_gpus(ranks, plan.gpus_shared, user_);
  for (std::size_t i = 0; claims && i < ranks.size(); ++i) {
    if (!ranks[i].empty()) {
      claims_.emplace(plan.ranks[i].instance, std::move((*claims)[i]));
    }
  }
  return claims.has_value();
}

void RankGpus::hold_only(const GangPlan& plan) {
  check_ = plan.gpu_check;
  std::erase_if(claims_, [&](const auto& claim) {
    return std::none_of(plan.ranks.begin(), plan.ranks.end(), [&](const GangRank& rank) {
      return rank.instance == claim.first && of(rank) == claim.second.devices();
    });
  });
  for (const auto& rank : plan.ranks) {
    hold(rank);
  }
}

void RankGpus::hold(const GangRank& rank) {
  const auto devices = of(rank).value_or(std::vector<std::string>());
  if (!devices.empty() && !claims_.contains(rank.instance)) {
    auto claims = claim_gpus({devices}, devices.size(), user_);
    claims_.emplace(rank.instance, std::move(claims->front()));
  }
}

std::optional<std::vector<std::string>> RankGpus::of(const GangRank& rank) const {
  auto gpus = own_gpus(rank);
  if (gpus) {
    for (std::string& device : *gpus) {
      const auto found = instead_.find(device);
      device = found == instead_.end() ? device : found->second;
    }
  }
  return gpus;
}

/// Each once, though several ranks may share it.
std::vector<std::string> RankGpus::all_of(const std::vector<GangRank>& ranks) const {
  std::vector<std::string> devices;
  for (const GangRank& rank : ranks) {
    for (const std::string& device : of(rank).value_or(std::vector<std::string>())) {
      add_once(devices, device);
    }
  }
  return devices;
}

void RankGpus::replace_faulty(std::vector<GangRank>& ranks, int fewest) {
  const auto has_some = [&](const GangRank& rank) { return are_held(rank.instance); };
  if (check_ == GpuCheck::none || std::none_of(ranks.begin(), ranks.end(), has_some)) {
    return;
  }
  const GpuHealth health = ask_gpu_health();
  const FaultOf fault_of = [&](const std::string& device) { return health.fault_of(device); };
  News news; // Lost where no rank starts: the error says it.
  auto without = replace(ranks, fewest, fault_of, news);
  if (check_ == GpuCheck::measured) {
    const auto more = replace_measured(ranks, fewest, fault_of, news);
    without.insert(without.end(), more.begin(), more.end());
  }
  if (!without.empty()) { // The last first.
    news.lines.push_back(fmt::format("no other GPU is free here: started without {}",
                                     fmt::join(without.rbegin(), without.rend(), ", ")));
  }
  news_.insert(news_.end(), news.lines.begin(), news.lines.end());
}

std::optional<RankGpus::FaultyGpu> RankGpus::first_faulty(const std::vector<GangRank>& ranks,
                                                          const FaultOf& fault_of) const {
  for (const GangRank& rank : ranks) {
    const auto planned = own_gpus(rank).value_or(std::vector<std::string>());
    const auto has = of(rank).value_or(std::vector<std::string>());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (auto fault = fault_of(has[i]); !fault.empty()) {
        return FaultyGpu{&rank, planned[i], has[i], std::move(fault)};
      }
    }
  }
  return std::nullopt;
}

/// Returns the instances that it did without, the last first.
std::vector<std::string> RankGpus::replace(std::vector<GangRank>& ranks, int fewest,
                                           const FaultOf& fault_of, News& news) {
  std::vector<std::string> without;
  while (const auto faulty = first_faulty(ranks, fault_of)) {
    const auto others = unclaimed_gpus(find_gpus());
    const auto other = std::find_if(others.begin(), others.end(),
                                    [&](const auto& device) { return fault_of(device).empty(); });
    if (other != others.end()) {
      news.lines.push_back(fmt::format("{}; using GPU {} instead", faulty->fault, *other));
      news.faults.insert(faulty->fault);
      swap(faulty->planned, *other);
      release(faulty->rank->instance);
      hold(*faulty->rank);
      continue;
    }
    const auto last = fewest == 0 ? ranks.end() : spare_worker(ranks, fewest);
    if (last == ranks.end()) {
      for (const GangRank& each : ranks) { // Before anybody is told: none of them starts.
        release(each.instance);
      }
      throw EngineError(
          fmt::format("{}; no other GPU is free here (--check-gpus=off skips the check)",
                      fmt::join(faults_of({faulty->device}, others, fault_of), "; ")));
    }
    for (const auto& fault : faults_of(all_of({*last}), others, fault_of)) {
      if (news.faults.insert(fault).second) {
        news.lines.push_back(fault);
      }
    }
    release(last->instance); // Its GPUs may be the others' now.
    without.push_back(last->instance);
    ranks.erase(last);
  }
  return without;
}

/// Measures the ranks' devices together, until those that took the place of others are good, too.
std::vector<std::string> RankGpus::replace_measured(std::vector<GangRank>& ranks, int fewest,
                                                    const FaultOf& known, News& news) {
  std::map<std::string, std::string> faults; // By device, those that were replaced, too.
  const FaultOf fault_of = [&](const std::string& device) {
    const auto found = faults.find(device);
    return found == faults.end() ? known(device) : found->second;
  };
  std::vector<std::string> without;
  auto measured = measure_gpus(all_of(ranks));
  faults.merge(measured.faults);
  while (first_faulty(ranks, fault_of)) {
    const auto more = replace(ranks, fewest, fault_of, news);
    without.insert(without.end(), more.begin(), more.end());
    measured = measure_gpus(all_of(ranks));
    faults.merge(measured.faults);
  }
  news.lines.insert(news.lines.end(), measured.links.begin(), measured.links.end());
  if (!measured.failure.empty()) {
    news.lines.push_back(
        fmt::format("the GPUs were not measured (--check-gpus=measure): {}", measured.failure));
  }
  return without;
}

/// Has the ranks' devices stay distinct: whoever was to have `other` gets what it takes the place
/// of.
void RankGpus::swap(const std::string& planned, const std::string& other) {
  const auto has_other = std::find_if(instead_.begin(), instead_.end(),
                                      [&](const auto& each) { return each.second == other; });
  const std::string before = has_other == instead_.end() ? other : has_other->first;
  const auto has = instead_.emplace(planned, planned).first;
  instead_[before] = has->second;
  has->second = other;
}

std::string RankGpus::take_news() {
  return fmt::format("{}", fmt::join(std::exchange(news_, {}), "; "));
}

} // namespace dtrain
