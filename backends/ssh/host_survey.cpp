#include "backends/ssh/host_survey.h"

#include "backends/local/gpu_health.h"
#include "backends/ssh/fan_out.h"
#include "backends/ssh/requests.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

namespace dtrain::ssh {

namespace {

constexpr double k_moment = 0.25; ///< Seconds for which the scripts look.
constexpr std::int64_t k_kibibyte = 1024;
constexpr std::int64_t k_most_ahead = 60; ///< Seconds: make and TLS go wrong by then.

std::vector<std::string> faults_in(const std::string& health_text) {
  const GpuHealth health = read_gpu_health(health_text);
  std::vector<std::string> faults;
  for (const GpuReport& gpu : health.gpus) {
    if (!gpu.fault.empty()) {
      faults.push_back(gpu.fault);
    }
  }
  if (!health.failure.empty()) {
    faults.push_back(health.failure);
  }
  return faults;
}

SurveyedHost read_answer(const HostSlots& host, const HostAnswer& answer) {
  SurveyedHost found;
  found.name = host.name;
  found.slots = host.slots;
  found.lack = answer.failure;
  double tick = 1;
  double busy = 0;
  std::string health;
  for (const auto& line : answer.lines) {
    constexpr std::string_view k_health = "health ";
    if (line.starts_with(k_health)) {
      health += line.substr(k_health.size()) + "\n";
      continue;
    }
    std::istringstream words(line);
    std::string key;
    words >> key;
    if ((key == "lacks" || key == "cannot") && found.lack.empty()) {
      found.lack = line;
    } else if (key == "address") {
      words >> found.address;
    } else if (key == "ranks") {
      words >> found.ranks;
    } else if (key == "gpus") {
      words >> found.gpus >> found.gpus_free;
    } else if (key == "cpus") {
      words >> found.cpus >> tick;
    } else if (key == "memory") {
      words >> found.memory >> found.memory_free;
    } else if (key == "busy") {
      words >> busy;
    } else if (std::int64_t seconds = 0; key == "clock" && words >> seconds && found.lack.empty()) {
      found.lack = clock_excuse(seconds - time_now() / k_second);
    }
  }
  found.gpu_faults = faults_in(health);
  found.memory *= k_kibibyte;
  found.memory_free *= k_kibibyte;
  found.cpus_used = std::clamp(busy / std::max(tick, 1.0) / k_moment, 0.0, found.cpus);
  return found;
}

std::vector<std::string> names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  std::transform(hosts.begin(), hosts.end(), std::back_inserter(names),
                 [](const HostSlots& host) { return host.name; });
  return names;
}

} // namespace

std::string clock_excuse(std::int64_t ahead) {
  return std::abs(ahead) <= k_most_ahead
             ? ""
             : fmt::format("its clock is {} s {} this machine's: set it (NTP)", std::abs(ahead),
                           ahead > 0 ? "ahead of" : "behind");
}

std::vector<SurveyedHost> survey_hosts(const std::vector<HostSlots>& hosts,
                                       const std::string& interface, bool asks_health) {
  auto script = fmt::format("chosen= without= interface={} asks_health={}\nhealth() {{\n{}}}\n",
                            quote_sh(interface), asks_health ? "1" : "", k_gpu_health_script);
  for (const auto* part : {"ssh/facts.sh", "ssh/probe.sh"}) {
    script += builtin_template(part).text;
  }
  const auto answers = ask_hosts(names_of(hosts), script);
  std::vector<SurveyedHost> found;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    found.push_back(read_answer(hosts[i], answers[i]));
  }
  return found;
}

std::string host_text(const SurveyedHost& host) {
  const auto slots =
      host.slots == 0
          ? fmt::format("{} of your ranks there", host.ranks)
          : fmt::format("{} of {} slots free", std::max(host.slots - host.ranks, 0), host.slots);
  return fmt::format("{}: {}, {} of {} GPUs free", host.address, slots, host.gpus_free, host.gpus);
}

std::vector<InstanceUsage> survey_ranks(int job_folder, const std::string& job_uid,
                                        const std::vector<InstanceStatus>& instances) {
  std::set<std::string> names;
  for (const auto& instance : instances) {
    if (instance.phase == Phase::running) {
      names.insert(instance.node);
    }
  }
  std::map<std::string, InstanceUsage> found;
  const std::vector<std::string> hosts(names.begin(), names.end());
  const std::string script(builtin_template("ssh/ranks.sh").text);
  auto answers = ask_supervisor(
      job_folder, hosts, fmt::format("begin() {{\nset -- {}\n{}}}\n", quote_sh(job_uid), script));
  if (!answers) {
    answers =
        ask_hosts(hosts, std::string(builtin_template("ssh/facts.sh").text) + script, {job_uid});
  }
  for (const auto& answer : *answers) {
    for (const auto& line : answer.lines) {
      std::istringstream words(line);
      std::string when;
      std::string name;
      double ticks = 0;
      double tick = 1;
      std::int64_t memory = 0;
      if (words >> when >> name >> ticks >> memory >> tick) {
        auto& use = found[name];
        const double cpus = ticks / std::max(tick, 1.0) / k_moment;
        use.cpus = when == "before" ? cpus : std::max(cpus - use.cpus, 0.0);
        use.memory = memory;
      }
    }
  }
  std::vector<InstanceUsage> usage;
  for (const auto& instance : instances) {
    if (const auto use = found.find(instance.name);
        instance.phase == Phase::running && use != found.end()) {
      usage.push_back(
          {instance.name, instance.node, use->second.cpus, use->second.memory, instance.gpus});
    }
  }
  return usage;
}

} // namespace dtrain::ssh
