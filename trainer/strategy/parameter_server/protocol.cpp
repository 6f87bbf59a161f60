#include "trainer/strategy/parameter_server/protocol.h"

#include "submit/options/json_number.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

namespace trainer {
namespace {

using dtrain::whole_number;
using nlohmann::json;

constexpr std::size_t k_floats_a_parameter = 4; ///< It, its gradient and two moments.

/// A model that this machine could hold: no memory is taken for a larger one.
std::size_t most_floats() {
  const auto pages = static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) /
         (k_floats_a_parameter * sizeof(float));
}

json policy_json(const PsPolicy& policy) {
  return {{"update", policy.sync ? "sync" : "async"},
          {"backup workers", policy.backup_workers},
          {"max staleness", policy.max_staleness},
          {"learning rate", policy.learning_rate.peak},
          {"learning rate schedule", schedule_name(policy.learning_rate.schedule)},
          {"updates", policy.learning_rate.whole},
          {"snapshot every", policy.snapshot_every},
          {"gradients", wire_type_name(policy.gradients)}};
}

json ranges_json(const std::vector<ArenaRange>& ranges) {
  json all = json::array();
  for (const ArenaRange& range : ranges) {
    all.push_back({range.first, range.last});
  }
  return all;
}

void check(bool ok, const char* what) {
  if (!ok) {
    throw LinkError(fmt::format("its hello has an impossible {}", what));
  }
}

std::vector<ArenaRange> parse_ranges(const json& all, std::size_t arena) {
  std::vector<ArenaRange> ranges;
  std::size_t left = arena; // Each float is in one range, at most.
  for (const json& one : all) {
    const ArenaRange range{whole_number<std::size_t>(one.at(0)),
                           whole_number<std::size_t>(one.at(1))};
    check(range.first < range.last && range.last <= arena && range.size() <= left, "range");
    left -= range.size();
    ranges.push_back(range);
  }
  return ranges;
}

} // namespace

std::string hello_text(const WorkerHello& hello) {
  return json{{"worker", hello.worker},
              {"workers", hello.workers},
              {"policy", policy_json(hello.policy)},
              {"job", hello.job},
              {"arena", hello.arena},
              {"ranges", ranges_json(hello.ranges)},
              {"memory", {hello.memory.pid, hello.memory.fd, hello.memory.nonce}}}
      .dump();
}

WorkerHello parse_hello(const std::string& text) {
  WorkerHello hello;
  try {
    const json all = json::parse(text);
    hello.worker = whole_number<int>(all.at("worker"));
    hello.workers = whole_number<int>(all.at("workers"));
    check(hello.workers >= 1 && hello.worker >= 0 && hello.worker < hello.workers, "worker");
    const json& policy = all.at("policy");
    hello.policy.sync = policy.at("update").get<std::string>() == "sync";
    hello.policy.backup_workers = whole_number<int>(policy.at("backup workers"));
    hello.policy.max_staleness = whole_number<std::int64_t>(policy.at("max staleness"));
    hello.policy.learning_rate = {
        policy.at("learning rate").get<double>(),
        parse_schedule(policy.at("learning rate schedule").get<std::string>()),
        policy.at("updates").get<double>()};
    hello.policy.snapshot_every = whole_number<std::int64_t>(policy.at("snapshot every"));
    const auto gradients = parse_wire_type(policy.at("gradients").get<std::string>());
    check(gradients.has_value(), "type of gradients");
    hello.policy.gradients = *gradients;
    check(hello.policy.backup_workers >= 0 && hello.policy.backup_workers < hello.workers &&
              hello.policy.snapshot_every >= 0,
          "policy");
    hello.job = all.at("job");
    hello.arena = whole_number<std::size_t>(all.at("arena"));
    check(hello.arena <= most_floats(), "arena");
    hello.ranges = parse_ranges(all.at("ranges"), hello.arena);
    const json& memory = all.at("memory");
    hello.memory.pid = whole_number<std::int64_t>(memory.at(0));
    hello.memory.fd = whole_number<std::int32_t>(memory.at(1));
    for (std::size_t i = 0; i < hello.memory.nonce.size(); ++i) {
      hello.memory.nonce[i] = whole_number<SharedFile::Nonce::value_type>(memory.at(2).at(i));
    }
  } catch (const UsageError&) {
    check(false, "learning rate schedule");
  } catch (const json::exception&) {
    throw LinkError("its hello cannot be read");
  }
  return hello;
}

std::string welcome_text(const ServerWelcome& welcome) {
  return json{{"version", welcome.version},
              {"generation", welcome.generation},
              {"has moved", welcome.has_moved},
              {"snapshots", welcome.snapshots},
              {"shares memory", welcome.shares_memory}}
      .dump();
}

ServerWelcome parse_welcome(const std::string& text) {
  try {
    const json all = json::parse(text);
    return {whole_number<std::int64_t>(all.at("version")),
            whole_number<std::int64_t>(all.at("generation")), all.at("has moved").get<bool>(),
            all.at("snapshots").get<std::vector<std::int64_t>>(),
            all.at("shares memory").get<bool>()};
  } catch (const json::exception&) {
    throw LinkError("its welcome cannot be read");
  }
}

std::optional<std::string> first_difference(const json& x, const json& y) {
  for (const auto& [key, value] : x.items()) {
    if (const json other = y.contains(key) ? y.at(key) : json(); value != other) {
      return fmt::format("{}: {} and {}", key, value.dump(), other.dump());
    }
  }
  return x.size() == y.size() ? std::nullopt : std::optional<std::string>("their settings");
}

std::optional<std::string> difference(const WorkerHello& a, const WorkerHello& b) {
  if (a.workers != b.workers) {
    return fmt::format("workers: {} and {}", a.workers, b.workers);
  }
  if (auto found = first_difference(policy_json(a.policy), policy_json(b.policy))) {
    return found;
  }
  if (auto found = first_difference(a.job, b.job)) {
    return found;
  }
  if (a.arena != b.arena || a.ranges != b.ranges) {
    return fmt::format("the model: {} and {} parameters", a.arena, b.arena);
  }
  return std::nullopt;
}

std::string job_text(const WorkerHello& hello) {
  return json{{"policy", policy_json(hello.policy)},
              {"job", hello.job},
              {"workers", hello.workers},
              {"ranges", ranges_json(hello.ranges)}}
      .dump();
}

SharedLayout::SharedLayout(std::size_t arena) {
  const std::size_t bytes =
      (arena * sizeof(float) + k_shared_page - 1) / k_shared_page * k_shared_page;
  gradients = k_shared_page;
  parameters = gradients + bytes;
  size = parameters + bytes;
}

} // namespace trainer
