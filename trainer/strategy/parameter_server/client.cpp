#include "trainer/strategy/parameter_server/client.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include "trainer/strategy/parameter_server/server_link.h"

namespace trainer {
namespace {

constexpr double k_answer_slice_seconds = 0.1;

[[noreturn]] void refuse_empty(const ParameterClient::Server& server) {
  throw PeerError(fmt::format("{} came back without the values that it held: --snapshot-dir and "
                              "--snapshot-every make it survive that",
                              server.name()));
}

/// Lets go of a lock while it lives.
class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

} // namespace

ParameterClient::ParameterClient(ClientOptions options, std::size_t count,
                                 std::function<void(const std::string&)> notice)
    : options_(std::move(options)), notice_(std::move(notice)),
      own_(options_.shared_memory ? 0 : 2 * count) {
  const SharedLayout layout(count);
  if (options_.shared_memory) {
    memory_ = SharedFile::create();
    memory_.grow(layout.size);
    mapping_ = memory_.map(0, layout.size);
    gradients_ = {reinterpret_cast<float*>(mapping_.data() + layout.gradients), count};
    parameters_ = {reinterpret_cast<float*>(mapping_.data() + layout.parameters), count};
  } else {
    gradients_ = own_.span().first(count);
    parameters_ = own_.span().last(count);
  }
  const auto placed = place(options_.tensors, options_.partitioner, options_.servers.size());
  for (std::size_t i = 0; i < options_.servers.size(); ++i) {
    WorkerHello hello;
    hello.worker = options_.worker;
    hello.workers = options_.workers;
    hello.policy = options_.policy;
    hello.job = options_.job;
    hello.ranges = placed[i];
    hello.arena = count;
    if (memory_) {
      hello.memory = memory_.ticket();
    }
    servers_.emplace_back(static_cast<int>(i), options_.servers[i], options_.token,
                          std::move(hello), parameters_, gradients_);
  }
  // Servers take silence for death; a worker in a long step says that it lives from here.
  alive_.emplace(mutex_, beat_seconds(options_.peer_timeout), [this] {
    for (Server& server : servers_) {
      if (&server != dialled_) {
        server.beat();
      }
    }
  });
}

ParameterClient::~ParameterClient() = default;

std::string ParameterClient::describe() const {
  const auto sharing = std::count_if(servers_.begin(), servers_.end(),
                                     [](const Server& s) { return s.welcome().shares_memory; });
  const WireType wire = options_.policy.gradients;
  return fmt::format(
      "{} parameter server{} ({}), {} through shared memory{}", servers_.size(),
      servers_.size() == 1 ? "" : "s", fmt::join(options_.servers, ", "), sharing,
      wire == WireType::fp32 ? "" : fmt::format("; gradients as {}", wire_type_name(wire)));
}

void ParameterClient::reconnect_lost(std::unique_lock<std::mutex>& lock) {
  for (Server& server : servers_) {
    if (server.is_open()) {
      continue;
    }
    dialled_ = &server;
    {
      // It may take long to come back: the others must hear meanwhile that this worker lives.
      const Unlocked unlocked(lock);
      server.dial(after_seconds(options_.rendezvous_timeout), options_.peer_timeout);
    }
    dialled_ = nullptr;
  }
}

void ParameterClient::drive(const Done& is_done) {
  const Deadline started = Clock::now();
  Deadline next_beat = after_seconds(beat_seconds(options_.peer_timeout));
  std::vector<pollfd> polled;
  std::vector<Server*> waited;
  for (;;) {
    polled.clear();
    waited.clear();
    for (Server& server : servers_) {
      if (!is_done(server)) {
        waited.push_back(&server);
        polled.push_back(server.to_poll());
      }
    }
    if (waited.empty()) {
      break;
    }
    poll(polled.data(), polled.size(), poll_timeout(after_seconds(k_answer_slice_seconds)));
    for (std::size_t i = 0; i < waited.size(); ++i) {
      waited[i]->advance(polled[i].revents, options_.peer_timeout);
    }
    if (Clock::now() >= next_beat) {
      next_beat = after_seconds(beat_seconds(options_.peer_timeout));
      for (Server& server : servers_) {
        server.beat();
      }
    }
  }
  seconds_waiting_ += -seconds_until(started);
}

std::int64_t ParameterClient::connect() {
  std::unique_lock lock(mutex_);
  for (;;) {
    try {
      reconnect_lost(lock);
      if (options_.policy.sync) {
        roll_back(std::numeric_limits<std::int64_t>::max());
      }
      give_first_values();
      pull_all();
      pull_newest();
      break;
    } catch (const ServerLost& lost) {
      notice_(lost.what());
    }
  }
  const std::int64_t version = servers_.front().version();
  return options_.policy.sync ? version : version / options_.workers;
}

void ParameterClient::give_first_values() {
  for (Server& server : servers_) {
    if (server.welcome().has_values) {
      continue;
    }
    for (const Server& other : servers_) {
      if (other.version() > 0) {
        refuse_empty(server);
      }
    }
    server.send_initial();
  }
}

/// The server that others must go back to: it came back from a snapshot, or did go back for one.
const ParameterClient::Server* ParameterClient::furthest_back() const {
  const Server* furthest = nullptr;
  for (const Server& server : servers_) {
    const bool went = server.welcome().resumed || server.was_rolled_back();
    if (went && (furthest == nullptr || server.version() < furthest->version())) {
      furthest = &server;
    }
  }
  return furthest;
}

/// Puts servers back to the version of one that came back, where that is before `step`: what it had
/// applied of later ones is lost. At `step` itself it needs only this worker's push again, and one
/// that is a step ahead waits for the others, which are about to take that step.
void ParameterClient::roll_back(std::int64_t step) {
  const Server* back = furthest_back();
  if (back == nullptr || back->version() >= step) {
    drive([&](const Server& server) {
      if (server.was_rolled_back() && server.version() < step) {
        throw ServerLost(server.went_back());
      }
      return !server.has_to_answer_push();
    });
    return;
  }
  const std::int64_t incarnation =
      back->was_rolled_back() ? back->went_back_for() : back->welcome().incarnation;
  std::vector<const Server*> asked;
  for (Server& server : servers_) {
    if (server.version() > back->version() && server.went_back_for() != incarnation) {
      server.ask_rollback(back->version(), incarnation);
      asked.push_back(&server);
    }
  }
  drive([&](const Server& server) {
    return server.went_back_for() == incarnation ||
           std::find(asked.begin(), asked.end(), &server) == asked.end();
  });
}

/// Since the values in the arena were asked for.
bool ParameterClient::was_rolled_back() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.was_rolled_back(); });
}

bool ParameterClient::have_one_version() const {
  return std::all_of(servers_.begin(), servers_.end(), [&](const Server& server) {
    return server.version() == servers_.front().version();
  });
}

/// Waits for what was asked. Throws ServerLost when a server goes back meanwhile.
void ParameterClient::await_answers() {
  drive([&](const Server& server) {
    if (server.was_rolled_back()) {
      throw ServerLost(server.went_back());
    }
    return server.has_answered();
  });
}

/// What this worker heard last may be of before a server came back.
void ParameterClient::pull_all() {
  for (Server& server : servers_) {
    server.pull(0);
  }
  await_answers();
}

/// Until all servers' values are of one version.
void ParameterClient::pull_newest() {
  while (options_.policy.sync && !have_one_version()) {
    const auto newest =
        std::max_element(servers_.begin(), servers_.end(), [](const Server& a, const Server& b) {
          return a.version() < b.version();
        });
    for (Server& server : servers_) {
      if (server.version() < newest->version()) {
        server.pull(newest->version());
      }
    }
    await_answers();
  }
}

FrameFields ParameterClient::push_fields(std::int64_t step, const Score& score,
                                         std::size_t samples) const {
  return {.step = step,
          .weight = static_cast<double>(samples > 0 ? samples : score.count),
          .loss = score.loss,
          .correct = score.correct,
          .count = score.count};
}

/// To every server that it can reach, for the other workers wait for that. Throws ServerLost for
/// the first that it cannot.
void ParameterClient::push_all() {
  std::optional<ServerLost> lost;
  for (Server& server : servers_) {
    try {
      server.push(last_push_);
    } catch (const ServerLost& error) {
      if (!lost) {
        lost = error;
      }
    }
  }
  if (lost) {
    throw ServerLost(*lost);
  }
}

/// To those that have yet to take the step.
void ParameterClient::push_again(std::int64_t step) {
  for (Server& server : servers_) {
    if (server.version() == step) {
      server.push(last_push_);
    }
  }
  await_answers();
}

bool ParameterClient::sends_gradients() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return !server.welcome().shares_memory; });
}

void ParameterClient::final(std::size_t count) {
  const std::lock_guard lock(mutex_);
  for (Server& server : servers_) {
    server.send_final(count);
  }
}

ParameterClient::Values ParameterClient::step(std::int64_t step, const Score& score,
                                              std::size_t samples) {
  std::unique_lock lock(mutex_);
  last_push_ = push_fields(step, score, samples);
  Values values;
  try {
    if (was_rolled_back()) {
      throw ServerLost("the servers went back while this worker computed");
    }
    push_all();
    await_answers();
    values.step = options_.policy.sync ? servers_.front().version() : step + 1;
    // With backup workers a late push is answered by each server's newest version.
    if (options_.policy.sync && !have_one_version()) {
      pull_newest();
      values.step = servers_.front().version();
    }
  } catch (const ServerLost& lost) {
    notice_(lost.what());
    values = recover(step, lock);
  }
  values.totals = servers_.front().totals();
  return values;
}

ParameterClient::Values ParameterClient::recover(std::int64_t pushed,
                                                 std::unique_lock<std::mutex>& lock) {
  for (;;) {
    try {
      std::vector<const Server*> back;
      for (const Server& server : servers_) {
        if (!server.is_open()) {
          back.push_back(&server);
        }
      }
      reconnect_lost(lock);
      for (const Server* server : back) {
        notice_(fmt::format("{} is back, at step {}", server->name(), server->version()));
        if (!server->welcome().has_values) {
          refuse_empty(*server);
        }
      }
      if (!options_.policy.sync) {
        pull_all();
        return {pushed + 1, true, {}};
      }
      roll_back(pushed);
      pull_all();
      if (std::all_of(servers_.begin(), servers_.end(), [&](const Server& server) {
            return server.version() == pushed || server.version() == pushed + 1;
          })) {
        push_again(pushed);
      }
      pull_newest();
      return {servers_.front().version(), true, {}};
    } catch (const ServerLost& lost) {
      notice_(lost.what());
    }
  }
}

bool ParameterClient::is_first() {
  const std::lock_guard lock(mutex_);
  try {
    pull_all();
  } catch (const ServerLost& lost) {
    notice_(lost.what()); // As it was when last heard of.
  }
  return servers_.front().first_worker() == options_.worker;
}

void ParameterClient::goodbye() {
  const std::lock_guard lock(mutex_);
  for (Server& server : servers_) {
    server.goodbye();
  }
  try {
    drive([](const Server& server) { return !server.has_unsent(); });
  } catch (const ServerLost& lost) {
    notice_(lost.what());
  }
}

} // namespace trainer
