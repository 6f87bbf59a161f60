// A preflight's part of GPUs (preflight.h): finds those that are faulty, by what the driver says
// and by measuring them, and has the hosts claim others.
#include "backends/local/gpu_measurement.h"
#include "backends/ssh/preflight.h"
#include "backends/supervised/gang/devices.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr std::chrono::seconds k_measure_timeout{
    120}; ///< Many GPUs, and a driver that loads first.

} // namespace

void Preflight::check_gpus(const HostQuestion& question) {
  ask_health(question);
  leave_out_faulty({question});
  refuse_bad(1);
  leave_out_measured({question});
  refuse_bad(1);
}

void Preflight::ask_health(const HostQuestion& question) {
  if (!question.checked.empty()) {
    health_[question.host.name] = expect(connections_.ask(
        question.host.name, fmt::format("begin() {{\n{}}}\n", k_gpu_health_script)));
  }
}

/// Hosts chose before faults were known: releases faulty GPUs, and claims others.
void Preflight::leave_out_faulty(const std::vector<HostQuestion>& questions) {
  std::vector<RankId> asked;
  for (const auto& [host, key] : health_) {
    asked.push_back(key);
  }
  await(asked, k_answer_timeout);
  std::map<std::string, HostFaults> faults;
  for (const auto& [host, key] : std::exchange(health_, {})) {
    const auto answer = take_answer(key);
    GpuHealth& health = found_[host] = read_gpu_health(answer.text);
    if (!answer.is_there) {
      health.failure = silent_nvidia_smi(k_answer_timeout.count());
    }
    HostFaults& known = faults[host];
    known.of = [&health](const std::string& device) { return health.fault_of(device); };
    known.failure = health.failure;
    for (const auto& gpu : health.gpus) {
      known.all += gpu.fault.empty()
                       ? ""
                       : fmt::format("{},{},{},", gpu.index, gpu.uuid, fmt::join(gpu.parts, ","));
    }
  }
  replace_faulty(questions, faults);
}

/// Has the hosts measure their ranks' GPUs, until those that took the place of others are good,
/// too. By now the trainer that the job brings is there.
void Preflight::leave_out_measured(const std::vector<HostQuestion>& questions) {
  std::map<std::string, std::map<std::string, std::string>> measured; // By host and device.
  std::map<std::string, HostFaults> faults;
  std::map<std::string, std::string> notes; // Of the last time, by host.
  do {
    std::vector<RankId> asked;
    std::vector<std::string> hosts;
    for (const auto& question : questions) {
      std::set<std::string> devices;
      for (const auto& instance : question.checked) {
        if (const auto claim = known_.claims.find(instance);
            question.measures && claim != known_.claims.end()) {
          const auto its = visible_gpus(claim->second.devices);
          devices.insert(its.begin(), its.end());
        }
      }
      if (!devices.empty()) {
        const auto trainer = payload_.bundle.empty()
                                 ? std::string("dtrain-trainer")
                                 : fmt::format("\"$cache\"/{}/{}", payload_.bundle, k_trainer_file);
        hosts.push_back(question.host.name);
        asked.push_back(expect(connections_.ask(
            question.host.name,
            script_of(question,
                      fmt::format("measure {} {}\n", trainer,
                                  quote_sh(fmt::format("{}", fmt::join(devices, ","))))))));
      }
    }
    await(asked, k_measure_timeout);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::string& host = hosts[i];
      const auto answer = take_answer(asked[i]);
      const MeasuredGpus found = read_measured_gpus(answer.text);
      if (!answer.is_there || !answer.failure.empty()) {
        reasons_.emplace(host,
                         fmt::format("dtrain-trainer check-gpus: {} (--check-gpus=on skips "
                                     "the measurement)",
                                     answer.is_there ? answer.failure
                                                     : fmt::format("no answer within {} s",
                                                                   k_measure_timeout.count())));
        continue;
      }
      auto& all = measured[host];
      for (const auto& [device, fault] : found.faults) {
        all.emplace(device, fault);
      }
      HostFaults& known = faults[host];
      known.of = [&all, &health = found_[host]](const std::string& device) {
        const auto fault = all.find(device);
        return fault == all.end() ? health.fault_of(device) : fault->second;
      };
      known.all.clear();
      for (const auto& [device, fault] : all) {
        known.all += device + ",";
      }
      for (const auto& gpu : found_[host].gpus) {
        known.all += gpu.fault.empty() ? "" : gpu.index + "," + gpu.uuid + ",";
      }
      notes[host] =
          found.failure.empty()
              ? fmt::format("{}", fmt::join(found.links, "; "))
              : fmt::format("the GPUs were not measured (--check-gpus=measure): {}", found.failure);
    }
  } while (is_good() && replace_faulty(questions, faults) && is_good());
  for (const auto& [host, note] : notes) {
    if (!note.empty() && is_good()) {
      known_.tell(fmt::format("{}: {}", host, note));
    }
  }
}

/// False: no host had a faulty one that was replaced.
bool Preflight::replace_faulty(const std::vector<HostQuestion>& questions,
                               const std::map<std::string, HostFaults>& faults) {
  struct Claim {
    std::string host, instance, faults;
    int gpus;
    RankId key;
  };
  std::vector<Claim> claims;
  for (const auto& [host, known] : faults) {
    const auto question = std::find_if(
        questions.begin(), questions.end(),
        [&, &name = host](const HostQuestion& each) { return each.host.name == name; });
    std::string but = known.all;
    std::map<std::string, std::string> faulty; // Keyed by instance.
    bool is_silent = false;
    for (const auto& instance : question->checked) {
      const auto claim = known_.claims.find(instance);
      for (const auto& device : claim == known_.claims.end()
                                    ? std::vector<std::string>()
                                    : visible_gpus(claim->second.devices)) {
        if (const auto fault = known.of(device); !fault.empty()) {
          auto& all = faulty[instance];
          all += fmt::format("{}{}", all.empty() ? "" : "; ", fault);
          is_silent = is_silent || fault == known.failure;
          but += device + ",";
        }
      }
    }
    if (is_silent) {
      reasons_.emplace(host, known.failure + " (--check-gpus=off skips the check)");
      continue;
    }
    for (const auto& [instance, text] : faulty) {
      const auto claim = known_.claims.find(instance);
      if (auto* connection = connections_.find(host)) {
        connection->free(claim->second.key);
      }
      claims.push_back({host, instance, text, claim->second.gpus,
                        expect(connections_.claim(host, claim->second.gpus, but))});
      known_.claims.erase(claim);
    }
  }
  std::vector<RankId> asked;
  asked.reserve(claims.size());
  for (const auto& each : claims) {
    asked.push_back(each.key);
  }
  await(asked, k_answer_timeout);
  for (const auto& each : claims) {
    if (!is_answered(each.key)) { // It has been released.
      reasons_.emplace(each.host, fmt::format("does not answer; {}", each.faults));
      continue;
    }
    const auto answer = take_answer(each.key);
    if (answer.failure.empty()) {
      known_.claims[each.instance] = {each.host, each.key, each.gpus, answer.text};
      known_.tell(fmt::format("{}: {}; {} uses GPU {} instead", each.host, each.faults,
                              each.instance, answer.text));
    } else {
      faulty_[each.instance] = {each.host, each.faults, answer.failure};
    }
  }
  return !claims.empty();
}

} // namespace dtrain::ssh
