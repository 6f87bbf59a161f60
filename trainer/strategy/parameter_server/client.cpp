#include "trainer/strategy/parameter_server/client.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/strategy/parameter_server/server_connection.h"

namespace trainer {
namespace {

/// Unlocks a mutex for its lifetime.
class Unlocked {
 public:
  explicit Unlocked(std::mutex& mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::mutex& mutex_;
};

} // namespace

ParameterClient::ParameterClient(PsJob job, const WorkerHello& self, std::size_t count,
                                 Notice notice, Device* device)
    : job_(std::move(job)), self_(self), notice_(std::move(notice)) {
  make_arenas(count, device);
  WorkerHello hello = self;
  hello.servers = static_cast<std::int64_t>(servers());
  hello.arena = count;
  if (job_.shared_memory) {
    hello.memory = memory_.ticket();
  }
  halves_.resize(hello.gradients() == WireType::fp32 ? 0 : count);
  for (const std::string& address : job_.task.servers) {
    servers_.emplace_back(*this, LinkPurpose::parameter_server, address, hello);
    ++hello.server;
  }
  if (has_chief()) {
    chief_.emplace_back(*this, LinkPurpose::coordinator, job_.task.chief, self_);
  }
  // The servers would take silence for death.
  alive_.emplace(mutex_, heartbeat_seconds(job_.peer_timeout), [this] {
    for (auto* const links : {&servers_, &chief_}) {
      for (Server& link : *links) {
        if (&link != dialled_) {
          link.send_heartbeat();
        }
      }
    }
  });
}

ParameterClient::~ParameterClient() = default;

void ParameterClient::make_arenas(std::size_t count, Device* device) {
  if (job_.shared_memory) {
    memory_ = SharedFile::create();
    memory_.grow(SharedArenas::file_size(count));
    arenas_ = SharedArenas(memory_, count);
    if (CudaDevice* const gpu = device == nullptr ? nullptr : device->cuda(); gpu != nullptr) {
      std::string why;
      pinned_ = gpu->pin(arenas_.memory(), why);
      job_.shared_memory = pinned_.size() > 0;
      if (!job_.shared_memory) {
        arenas_ = {};
        memory_ = {};
        notice_(fmt::format("gpu:{} cannot pin memory that processes share ({}): gradients and "
                            "parameters go over TCP to the servers of this machine, too",
                            gpu->index(), why));
      }
    }
  }
  if (!job_.shared_memory) {
    own_ = device == nullptr ? Buffer(2 * count) : device->allocate_pinned(2 * count, DType::f32);
    std::fill_n(own_.data(), own_.size(), 0.0F); // Between tensors nobody writes.
  }
  gradients_ = job_.shared_memory ? arenas_.gradients() : own_.span().first(count);
  parameters_ = job_.shared_memory ? arenas_.parameters() : own_.span().last(count);
}

std::string ParameterClient::describe() const {
  const auto sharing = std::count_if(servers_.begin(), servers_.end(),
                                     [](const Server& s) { return s.state().shares_memory != 0; });
  const auto wire = static_cast<WireType>(self_.settings.wire);
  return fmt::format(
      "{} parameter server{} ({}), {} through shared memory{}", servers_.size(),
      servers_.size() == 1 ? "" : "s", fmt::join(job_.task.servers, ", "), sharing,
      wire == WireType::fp32 ? "" : fmt::format("; gradients as {}", wire_type_name(wire)));
}

void ParameterClient::dial(Server& server) {
  dialled_ = &server;
  {
    // It may take long to come back; meanwhile heartbeats to the others go on.
    const Unlocked unlocked(mutex_);
    server.dial();
  }
  dialled_ = nullptr;
}

/// Waits for the answers to all requests. Throws ServerLost if a server has begun a later
/// generation meanwhile.
void ParameterClient::await(std::list<Server>& asked, std::int64_t generation) {
  const Deadline started = Clock::now();
  std::vector<pollfd> polled;
  std::vector<Server*> waited;
  for (;;) {
    polled.clear();
    waited.clear();
    for (Server& server : asked) {
      if (server.state().generation > generation) {
        throw ServerLost(
            fmt::format("{} restarted from step {}", server.name(), server.state().version));
      }
      if (!server.has_answered()) {
        waited.push_back(&server);
        polled.push_back(server.to_poll());
      }
    }
    if (waited.empty()) {
      break;
    }
    {
      const Unlocked unlocked(mutex_);
      poll(polled.data(), polled.size(),
           poll_timeout(after_seconds(heartbeat_seconds(job_.peer_timeout))));
    }
    for (std::size_t i = 0; i < waited.size(); ++i) {
      waited[i]->advance(polled[i].revents);
    }
  }
  seconds_waiting_ += -seconds_until(started);
}

void ParameterClient::ask_all(FrameType type) {
  for (Server& server : servers_) {
    server.ask(type);
  }
  await(servers_, type == FrameType::ask_state ? INT64_MAX : generation_);
}

void ParameterClient::meet_chief() {
  const std::lock_guard lock(mutex_);
  dial(chief_.front());
}

std::optional<std::int64_t> ParameterClient::next(const Request& report) {
  const std::lock_guard lock(mutex_);
  chief_.front().ask(FrameType::next_batch, report);
  await(chief_);
  const std::int64_t batch = chief_.front().state().batch;
  return batch < 0 ? std::nullopt : std::optional(batch);
}

/// Pulls until the values of all servers have one version: that of the push, or an earlier one.
void ParameterClient::join() {
  for (const std::int64_t pushed_in = generation_;;) {
    try {
      for (Server& server : servers_) {
        if (!server.is_open()) {
          dial(server);
        }
      }
      begin();
      ask_all(FrameType::pull); // The last answer may predate a server's restart.
      if (self_.policy.is_sync() && generation_ == pushed_in) {
        push(last_push_.step); // To the servers that have not taken the step yet.
      }
      pull_newest();
      return;
    } catch (const ServerLost& lost) {
      notice_(lost.what());
    }
  }
}

/// Brings all servers into one generation: the current one, or a new one.
void ParameterClient::begin() {
  // Ask twice, as they answer one after the other: a server without values, while another had
  // updates before, is not about to get its first values from another worker.
  ask_all(FrameType::ask_state);
  std::int64_t moved = 0;
  bool has_begun = false;
  for (const Server& server : servers_) {
    const ServerState& one = server.state();
    moved = std::max(moved, one.has_moved != 0 ? one.generation : 0);
    has_begun = has_begun || one.version > 0 || one.snapshots.front() > 0;
  }
  ask_all(FrameType::ask_state);
  const bool is_sync = self_.policy.is_sync();
  const std::int64_t common = newest_common();
  const auto snapshot_of = [&](const Server& server) {
    return is_sync ? common : server.state().snapshots.front();
  };
  std::int64_t generation = 1;
  bool is_one_lost = false;
  for (const Server& server : servers_) {
    generation = std::max(generation, server.state().generation);
    is_one_lost = is_one_lost || server.has_lost_values();
    if (has_begun && server.has_lost_values() && snapshot_of(server) < 0) {
      throw PeerError(fmt::format("{} came back without the values that it held, or a snapshot "
                                  "that all servers have: --snapshot-dir and --snapshot-every make "
                                  "it survive that",
                                  server.name()));
    }
  }
  if (is_sync && is_one_lost) {
    // Unless another worker started the generation and is about to tell the lost server.
    generation = std::max(generation, generation_ + 1);
    generation += moved == generation ? 1 : 0;
  }
  generation_ = generation;
  for (Server& server : servers_) {
    server.begin(generation, snapshot_of(server));
  }
}

/// Version of the newest snapshot that all servers have; -1: none.
std::int64_t ParameterClient::newest_common() const {
  for (const std::int64_t version : servers_.front().state().snapshots) {
    const bool is_common =
        std::all_of(servers_.begin(), servers_.end(), [version](const Server& server) {
          const auto& has = server.state().snapshots;
          return std::find(has.begin(), has.end(), version) != has.end();
        });
    if (is_common) {
      return version;
    }
  }
  return -1;
}

std::int64_t ParameterClient::connect() {
  const std::lock_guard lock(mutex_);
  join();
  const std::int64_t version = servers_.front().version();
  values_ = {self_.policy.is_sync() ? version : version / self_.workers, servers_.front().totals()};
  return values_.step;
}

/// Pulls until the values of all servers have one version.
void ParameterClient::pull_newest() {
  while (self_.policy.is_sync()) {
    const auto [oldest, newest] =
        std::minmax_element(servers_.begin(), servers_.end(), [](const Server& a, const Server& b) {
          return a.version() < b.version();
        });
    if (oldest->version() == newest->version()) {
      break;
    }
    for (Server& server : servers_) {
      if (server.version() < newest->version()) {
        server.ask(FrameType::pull, {.step = newest->version()});
      }
    }
    await(servers_, generation_);
  }
}

/// Pushes to the servers whose values have this version; -1: to all.
void ParameterClient::push(std::int64_t version) {
  for (Server& server : servers_) {
    if (version < 0 || server.version() == version) {
      server.push(last_push_);
    }
  }
  await(servers_, generation_);
}

bool ParameterClient::sends_gradients() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.state().shares_memory == 0; });
}

void ParameterClient::final(std::size_t count) {
  const std::lock_guard lock(mutex_);
  for (Server& server : servers_) {
    server.send_final(count);
  }
}

ParameterClient::Values ParameterClient::step(std::int64_t step, const Score& score,
                                              std::size_t samples, double factor) {
  const std::lock_guard lock(mutex_);
  last_push_ = {.step = step,
                .weight = static_cast<double>(samples > 0 ? samples : score.count),
                .factor = factor,
                .score = score};
  try {
    push(-1);
    pull_newest(); // With backup workers a late push is answered by each server's newest version.
  } catch (const ServerLost& lost) {
    notice_(lost.what());
    join();
  }
  values_ = {self_.policy.is_sync() ? servers_.front().version() : step + 1,
             servers_.front().totals()};
  return values_;
}

bool ParameterClient::is_first() {
  const std::lock_guard lock(mutex_);
  try {
    ask_all(FrameType::pull);
  } catch (const ServerLost& lost) {
    notice_(lost.what()); // The state of the server when it was last heard of.
  }
  return servers_.front().state().first_worker == self_.worker;
}

void ParameterClient::goodbye() {
  const std::lock_guard lock(mutex_);
  for (auto* const links : {&chief_, &servers_}) {
    for (Server& link : *links) {
      try {
        link.goodbye();
      } catch (const ServerLost& lost) {
        notice_(lost.what());
      }
    }
  }
}

} // namespace trainer
