#include "trainer/strategy/parameter_server/client.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include "trainer/strategy/parameter_server/server_link.h"

namespace trainer {
namespace {

constexpr double k_slice_seconds = 0.1;

[[noreturn]] void refuse_empty(const ParameterClient::Server& server) {
  throw PeerError(fmt::format("{} came back without the values that it held: --snapshot-dir and "
                              "--snapshot-every make it survive that",
                              server.name()));
}

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
  const auto placed = place(options_.variables, options_.partitioner, options_.servers.size());
  for (std::size_t i = 0; i < options_.servers.size(); ++i) {
    WorkerHello hello;
    hello.worker = options_.worker;
    hello.workers = options_.workers;
    hello.policy = options_.policy;
    hello.job = options_.job;
    hello.shards = placed[i];
    hello.arena = count;
    if (memory_) {
      hello.memory = memory_.ticket();
    }
    servers_.emplace_back(static_cast<int>(i), options_.servers[i], options_.token,
                          std::move(hello), parameters_, gradients_);
  }
  alive_ = std::thread([this] { tell_alive(); });
}

ParameterClient::~ParameterClient() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  alive_.join();
}

/// Servers take silence for death; a worker in a long step says that it lives from here.
void ParameterClient::tell_alive() {
  std::unique_lock lock(mutex_);
  const auto period = std::chrono::duration<double>(beat_seconds(options_.peer_timeout));
  while (!ending_.wait_for(lock, period, [&] { return ended_; })) {
    for (Server& server : servers_) {
      server.beat();
    }
  }
}

std::string ParameterClient::describe() const {
  const auto sharing = std::count_if(servers_.begin(), servers_.end(),
                                     [](const Server& s) { return s.welcome().shares_memory; });
  return fmt::format("{} parameter server{} ({}), {} through shared memory", servers_.size(),
                     servers_.size() == 1 ? "" : "s", fmt::join(options_.servers, ", "), sharing);
}

void ParameterClient::reconnect_lost() {
  for (Server& server : servers_) {
    if (!server.is_open()) {
      server.dial(after_seconds(options_.rendezvous_timeout), options_.peer_timeout);
    }
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
    poll(polled.data(), polled.size(), poll_timeout(after_seconds(k_slice_seconds)));
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
  const std::lock_guard lock(mutex_);
  for (;;) {
    try {
      reconnect_lost();
      if (options_.policy.sync) {
        roll_back();
      }
      give_first_values();
      pull_all();
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

/// Whether servers had to be, or have been, put back to the version of one that came back.
bool ParameterClient::roll_back() {
  const auto oldest =
      std::min_element(servers_.begin(), servers_.end(),
                       [](const Server& a, const Server& b) { return a.version() < b.version(); });
  const bool came_back = std::any_of(servers_.begin(), servers_.end(),
                                     [](const Server& s) { return s.welcome().resumed; });
  bool rolled = false;
  for (Server& server : servers_) {
    rolled = rolled || server.was_rolled_back();
    if (came_back && server.version() > oldest->version()) {
      server.ask_rollback(oldest->version(), oldest->welcome().incarnation);
      rolled = true;
    }
  }
  drive([&](const Server& server) { return server.version() <= oldest->version() || !came_back; });
  return rolled;
}

/// Values of one version of all servers.
void ParameterClient::pull_all() {
  std::int64_t newest = 0;
  for (const Server& server : servers_) {
    newest = std::max(newest, server.version());
  }
  for (Server& server : servers_) {
    server.pull(options_.policy.sync ? newest : 0);
  }
  drive([](const Server& server) { return server.has_answered(); });
}

FrameHeader ParameterClient::push_header(std::int64_t step, const Score& score) const {
  FrameHeader header;
  header.type = FrameType::push;
  header.step = step;
  header.weight = static_cast<double>(score.count);
  header.loss = score.loss;
  header.correct = score.correct;
  header.count = score.count;
  return header;
}

ParameterClient::Values ParameterClient::step(std::int64_t step, const Score& score) {
  const std::lock_guard lock(mutex_);
  last_push_ = push_header(step, score);
  Values values;
  try {
    for (Server& server : servers_) {
      server.push(last_push_);
    }
    drive([](const Server& server) { return server.has_answered(); });
    values.step = options_.policy.sync ? servers_.front().version() : step + 1;
    for (const Server& server : servers_) {
      // With backup workers a late push is answered by each server's newest version.
      if (options_.policy.sync && server.version() != values.step) {
        pull_all();
        values.step = servers_.front().version();
        break;
      }
    }
  } catch (const ServerLost& lost) {
    notice_(lost.what());
    values = recover(step);
  }
  values.totals = servers_.front().totals();
  return values;
}

ParameterClient::Values ParameterClient::recover(std::int64_t pushed) {
  for (;;) {
    try {
      std::vector<Server*> back;
      for (Server& server : servers_) {
        if (!server.is_open()) {
          back.push_back(&server);
        }
      }
      reconnect_lost();
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
      if (roll_back()) {
        pull_all();
        return {servers_.front().version(), true, {}};
      }
      for (Server* server : back) {
        server->version() == pushed ? server->push(last_push_) : server->pull(server->version());
      }
      drive([](const Server& server) { return server.has_answered(); });
      pull_all();
      return {servers_.front().version(), true, {}};
    } catch (const ServerLost& lost) {
      notice_(lost.what());
    }
  }
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

std::vector<float> ParameterClient::pull_rows(const std::string& variable,
                                              std::span<const std::uint64_t> rows) {
  const std::lock_guard lock(mutex_);
  struct Part {
    std::vector<std::uint64_t> rows; ///< Within the shard.
    std::vector<std::size_t> places; ///< In the answer.
  };
  std::map<std::pair<Server*, std::size_t>, Part> parts;
  std::size_t length = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Holder holder = find_row(servers_, variable, rows[i]);
    Part& part = parts[{holder.server, holder.shard}];
    part.rows.push_back(holder.row);
    part.places.push_back(i);
    length = holder.row_length;
  }
  std::vector<float> values(rows.size() * length);
  for (auto& [where, part] : parts) {
    Server& server = *where.first;
    server.pull_rows(where.second, part.rows);
    drive([&](const Server& one) { return &one != &server || one.has_answered(); });
    for (std::size_t i = 0; i < part.places.size(); ++i) {
      std::copy_n(server.rows().data() + i * length, length,
                  values.data() + part.places[i] * length);
    }
  }
  return values;
}

void ParameterClient::push_rows(const std::string& variable, std::span<const std::uint64_t> rows,
                                std::span<const float> gradients) {
  const std::lock_guard lock(mutex_);
  struct Part {
    std::vector<std::uint64_t> rows;
    std::vector<float> gradients;
  };
  std::map<std::pair<Server*, std::size_t>, Part> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Holder holder = find_row(servers_, variable, rows[i]);
    Part& part = parts[{holder.server, holder.shard}];
    part.rows.push_back(holder.row);
    const auto row = gradients.subspan(i * holder.row_length, holder.row_length);
    part.gradients.insert(part.gradients.end(), row.begin(), row.end());
  }
  for (auto& [where, part] : parts) {
    where.first->push_rows(where.second, part.rows, part.gradients);
  }
}

} // namespace trainer
