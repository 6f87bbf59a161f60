#include "trainer/strategy/parameter_server/server.h"

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <future>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/strategy/parameter_server/raw_worker.h"
#include "tests/unit/trainer/strategy/parameter_server/relay.h"
#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "tests/unit/trainer/temp_folder.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"
#include "trainer/job/handshake.h"

namespace trainer {
namespace {

using namespace test;

TEST_CASE("synchronous workers and servers hold what one process would") {
  for (const bool shared : {false, true}) {
    for (const int servers : {1, 3}) {
      CAPTURE(shared);
      CAPTURE(servers);
      std::list<Running> running;
      std::vector<std::string> addresses;
      for (int i = 0; i < servers; ++i) {
        addresses.push_back(running.emplace_back(i).address());
      }
      std::vector<std::future<std::vector<float>>> workers;
      for (int w = 0; w < 3; ++w) {
        workers.push_back(std::async(std::launch::async, [&, w] {
          WorkerOptions options = options_for(addresses, w, 3);
          options.job.shared_memory = shared;
          return work(options, 20);
        }));
      }
      const auto expected = expected_after(20, 3);
      for (auto& worker : workers) {
        check_close(worker.get(), expected);
      }
      for (Running& server : running) {
        CHECK(server.finish() == "");
      }
    }
  }
}

TEST_CASE("an asynchronous job trains, and its workers stay within the staleness bound") {
  Running server(0);
  std::array<std::atomic<std::int64_t>, 2> at{};
  std::atomic<std::int64_t> furthest = 0;
  std::vector<std::future<std::vector<float>>> workers;
  for (int w = 0; w < 2; ++w) {
    workers.push_back(std::async(std::launch::async, [&, w] {
      WorkerOptions options = options_for({server.address()}, w, 2);
      options.self.policy.sync = 0;
      options.self.policy.max_staleness = 2;
      return work(options, 200, [&](std::int64_t step) {
        at[static_cast<std::size_t>(w)] = step;
        const std::int64_t ahead = step - at[static_cast<std::size_t>(1 - w)];
        furthest = std::max<std::int64_t>(furthest, ahead);
      });
    }));
  }
  for (auto& worker : workers) {
    const auto values = worker.get();
    CHECK(std::abs(values[500] - 0.5F) > 0.1F);
  }
  // A step begins before it is counted: one more than the bound of pushes may be seen.
  CHECK(furthest <= 3);
  CHECK(server.finish() == "");
}

TEST_CASE("with a backup worker, updates do not wait for the slowest") {
  Running server(0);
  std::atomic<bool> are_done = false;
  const auto worker = [&](int w) {
    WorkerOptions options = options_for({server.address()}, w, 3);
    options.self.policy.backup_workers = 1;
    return work(options, 10, [&, w](std::int64_t step) {
      if (w == 2 && step == 1) {
        unit::wait_until([&] { return are_done.load(); });
      }
    });
  };
  auto slow = std::async(std::launch::async, worker, 2);
  auto first = std::async(std::launch::async, worker, 0);
  auto second = std::async(std::launch::async, worker, 1);
  first.get();
  second.get();
  are_done = true;
  CHECK(slow.get().size() == k_count);
  CHECK(server.finish() == "");
}

TEST_CASE("a worker that leaves without a goodbye is named, and the others go on") {
  Running server(0);
  auto stays = std::async(std::launch::async,
                          [&] { return work(options_for({server.address()}, 0, 2), 50); });
  {
    ParameterClient leaves = options_for({server.address()}, 1, 2).client();
    std::int64_t step = leaves.connect();
    while (step < 5) {
      step = leaves.step(step, {1.0, 1, 1}).step;
    }
  }
  stays.get();
  CHECK(server.finish() == "");
  CHECK(server.has_said("lost worker 1 ("));
  CHECK(server.has_said("at step 5"));
}

TEST_CASE("servers that are killed come back to a snapshot, and the result is that of no failure") {
  bool shared = false;
  SUBCASE("over TCP") {}
  SUBCASE("through shared memory") { shared = true; }
  const TempFolder folder;
  const auto folder_of = [&](int i) { return folder / std::to_string(i); };
  const HeldPort port;
  auto steady = std::make_unique<Running>(0, 0, folder_of(0));
  auto killed = std::make_unique<Running>(1, port.number(), folder_of(1));
  const std::vector<std::string> addresses = {steady->address(), killed->address()};
  std::atomic<bool> kill_now = false;
  std::atomic<bool> was_killed = false;
  std::vector<std::future<std::vector<float>>> workers;
  for (int w = 0; w < 2; ++w) {
    workers.push_back(std::async(std::launch::async, [&, w] {
      WorkerOptions options = options_for(addresses, w, 2);
      options.self.policy.snapshot_every = 10;
      options.job.shared_memory = shared;
      return work(options, 60, [&](std::int64_t step) {
        if (step == 34) {
          kill_now = true;
        }
        if (kill_now && step >= 34) { // The kill falls before the next snapshot, in some step.
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        if (step == 39) {
          unit::wait_until([&] { return was_killed.load(); });
        }
      });
    }));
  }
  unit::wait_until([&] { return kill_now.load(); });
  killed.reset();
  was_killed = true;
  killed = std::make_unique<Running>(1, port.number(), folder_of(1));
  const auto expected = expected_after(60, 2);
  for (auto& worker : workers) {
    check_close(worker.get(), expected);
  }
  CHECK(steady->finish() == "");
  CHECK(killed->finish() == "");
  CHECK(killed->has_said("resumes at step"));
  CHECK(steady->has_said("resumes at step"));
}

TEST_CASE("a server that comes back goes on counting samples where it was") {
  const TempFolder snapshots;
  const HeldPort port;
  auto server = std::make_unique<Running>(0, port.number(), snapshots.path());
  WorkerOptions options = options_for({server->address()}, 0, 1);
  options.self.policy.snapshot_every = 1;
  ParameterClient client = options.client();
  std::int64_t step = client.connect();
  for (const std::int64_t expected : {1, 2, 3, 4, 5, 6}) {
    if (expected == 4) {
      server.reset();
      server = std::make_unique<Running>(0, port.number(), snapshots.path());
    }
    ParameterClient::Values values = client.step(step, {0.5, 1, 1});
    if (expected == 4) {
      CHECK(values.step == 3); // As the snapshot has it.
      values = client.step(step, {0.5, 1, 1});
    }
    step = values.step;
    CHECK(step == expected);
    CHECK(values.totals.count == expected);
    CHECK(values.totals.loss == 0.5 * static_cast<double>(expected));
  }
}

TEST_CASE("the first worker that is there, or is done, is the one to tell how the job went") {
  Running server(0);
  const auto client_of = [&](int worker) {
    const WorkerOptions options = options_for({server.address()}, worker, 3);
    return std::make_unique<ParameterClient>(options.job, options.self, k_count,
                                             [](const std::string&) {});
  };
  std::vector<std::unique_ptr<ParameterClient>> clients;
  std::vector<std::future<std::int64_t>> steps;
  for (int worker = 0; worker < 3; ++worker) {
    clients.push_back(client_of(worker));
  }
  for (const auto& client : clients) {
    steps.push_back(std::async(std::launch::async, [&client] { return client->connect(); }));
  }
  for (auto& step : steps) {
    CHECK(step.get() == 0);
  }
  CHECK(clients[0]->is_first());
  CHECK(!clients[1]->is_first());
  clients[0].reset(); // Without a goodbye.
  unit::wait_until([&] { return server.has_said("lost worker 0 ("); });
  CHECK(clients[1]->is_first());
  clients[1]->goodbye();
  CHECK(!clients[2]->is_first());
  clients[2]->goodbye();
  CHECK(server.finish() == "");
}

TEST_CASE("a worker whose shared memory is shorter than its parameters is turned away") {
  Running server(0);
  const SharedFile file = SharedFile::create(); // One page.
  WorkerHello hello = RawWorker::hello(0, 1);
  hello.memory = file.ticket();
  RawWorker worker(server, hello);
  CHECK_THROWS_AS(worker.read_until(FrameType::state), LinkError);
  RawWorker another(server, RawWorker::hello(0, 1));
  another.read_until(FrameType::state);
}

TEST_CASE("a server that comes back a step ahead of the others goes back with them") {
  const TempFolder folder;
  const auto folder_of = [&](int i) { return folder / std::to_string(i); };
  Running behind(0, 0, folder_of(0));
  const HeldPort port;
  auto ahead = std::make_unique<Running>(1, port.number(), folder_of(1));
  Relay to_behind(behind.port()); // From worker 1.
  Relay to_ahead(port.number());  // From worker 0.
  std::atomic<bool> is_lost = false;
  const std::vector<std::vector<std::string>> servers = {{behind.address(), to_ahead.address()},
                                                         {to_behind.address(), ahead->address()}};
  std::vector<std::future<std::vector<float>>> workers;
  for (int w = 0; w < 2; ++w) {
    workers.push_back(std::async(std::launch::async, [&, w] {
      WorkerOptions options = options_for(servers[static_cast<std::size_t>(w)], w, 2);
      options.self.policy.snapshot_every = 5;
      const auto before_step = [&, w](std::int64_t step) {
        if (step == 9 && !is_lost) {
          w == 0 ? to_ahead.hold_server() : to_behind.hold_worker(true);
        }
      };
      return work(options, 15, before_step, [&](const std::string& notice) {
        is_lost = is_lost || notice.find(" lost ps 1 (") != std::string::npos;
      });
    }));
  }
  unit::wait_until(
      [&] { return std::filesystem::exists(folder / "1/ps-1-of-2/step-000000010.json"); });
  ahead.reset();
  unit::wait_until([&] { return is_lost.load(); });
  ahead = std::make_unique<Running>(1, port.number(), folder_of(1));
  unit::wait_until([&] { return behind.has_said("resumes at step 5 "); });
  to_behind.hold_worker(false);
  const auto expected = expected_after(15, 2);
  for (auto& worker : workers) {
    check_close(worker.get(), expected);
  }
  CHECK(behind.finish() == "");
  CHECK(ahead->finish() == "");
  CHECK(ahead->has_said("resumes at step 5 "));
}

TEST_CASE("servers restart once, whoever asks, and drop what was pushed before") {
  constexpr std::size_t k_held = 800 * sizeof(float);
  const TempFolder folder;
  Running server(0, 0, folder.path());
  RawWorker first(server, RawWorker::hello(0, 2));
  RawWorker second(server, RawWorker::hello(1, 2));
  first.read_until(FrameType::state);
  second.read_until(FrameType::state);
  first.send(FrameType::begin, {.generation = 1, .step = -1}, k_held);
  second.read_until(FrameType::state); // The first has begun.
  second.send(FrameType::begin, {.generation = 1, .step = -1}, k_held);
  const auto push = [&](RawWorker& worker, std::int64_t generation, std::int64_t step) {
    worker.send(FrameType::gradients, k_held);
    worker.send(FrameType::push, {.generation = generation, .step = step, .weight = 1});
  };
  for (const std::int64_t step : {0, 1}) {
    for (RawWorker* worker : {&first, &second}) {
      push(*worker, 1, step);
    }
    first.read_until(FrameType::parameters);
    second.read_until(FrameType::parameters);
  }
  first.send(FrameType::begin, {.generation = 2, .step = 1});
  CHECK(second.read_until(FrameType::state).empty());
  push(second, 1, 2);
  second.send(FrameType::begin, {.generation = 2, .step = 1});
  second.send(FrameType::pull, {.generation = 2, .step = 1});
  CHECK(second.read_until(FrameType::parameters).empty());
  push(first, 2, 1);
  push(second, 2, 1);
  CHECK(first.read_until(FrameType::parameters).empty());
  for (RawWorker* worker : {&first, &second}) {
    worker->send(FrameType::goodbye);
  }
  CHECK(server.finish() == "");
  CHECK(server.has_said("ends at step 2:"));
}

TEST_CASE("a server that comes back before the first update restarts from the first values") {
  const TempFolder folder;
  const auto folder_of = [&](int i) { return folder / std::to_string(i); };
  const HeldPort port;
  Running stays(0, 0, folder_of(0));
  auto killed = std::make_unique<Running>(1, port.number(), folder_of(1));
  WorkerOptions options = options_for({stays.address(), killed->address()}, 0, 1);
  options.self.policy.snapshot_every = 100;
  check_close(work(options, 20,
                   [&](std::int64_t step) {
                     if (step == 7 && !stays.has_said("resumes")) {
                       killed.reset();
                       killed = std::make_unique<Running>(1, port.number(), folder_of(1));
                     }
                   }),
              expected_after(20, 1));
  CHECK(stays.has_said("resumes at step 0 "));
}

TEST_CASE("a server that comes back without a snapshot is named, and the job ends") {
  const HeldPort port;
  Running stays(0);
  auto killed = std::make_unique<Running>(1, port.number());
  ParameterClient client = options_for({stays.address(), killed->address()}, 0, 1).client();
  const std::int64_t step = client.step(client.connect(), {1.0, 1, 1}).step;
  killed.reset();
  killed = std::make_unique<Running>(1, port.number());
  const std::string why = message_of<PeerError>([&] { client.step(step, {1.0, 1, 1}); });
  CHECK(contains(why, "ps 1 (" + killed->address() + ") came back without"));
}

TEST_CASE("workers wait long for a server that is lost, and the others do not miss them" *
          unit::waits()) {
  const TempFolder folder;
  constexpr double k_short_timeout = 3.0 * unit::k_slowness; // In which each has to be heard.
  constexpr double k_wait = unit::k_patience;
  const HeldPort port;
  Running stays(0, 0, folder / "0", k_wait, k_short_timeout);
  auto killed = std::make_unique<Running>(1, port.number(), folder / "1", k_wait, k_short_timeout);
  std::atomic<bool> has_begun = false;
  std::atomic<bool> was_killed = false;
  auto worker = std::async(std::launch::async, [&] {
    WorkerOptions options = options_for({stays.address(), killed->address()}, 0, 1);
    options.self.policy.snapshot_every = 1;
    options.job.peer_timeout = k_short_timeout;
    options.job.rendezvous_timeout = k_wait;
    return work(options, 100, [&](std::int64_t step) {
      has_begun = step > 5;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (step == 50) {
        unit::wait_until([&] { return was_killed.load(); });
      }
    });
  });
  unit::wait_until([&] { return has_begun.load(); });
  killed.reset();
  was_killed = true;
  std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * k_short_timeout));
  killed = std::make_unique<Running>(1, port.number(), folder / "1", k_wait, k_short_timeout);
  check_close(worker.get(), expected_after(100, 1));
  CHECK(stays.finish() == "");
  CHECK(!stays.has_said("lost worker"));
}

TEST_CASE("a worker with another seed is refused with what differs") {
  Running server(0);
  ParameterClient first = options_for({server.address()}, 1, 2).client();
  first.connect(); // It is welcome: the job is as it says.
  WorkerOptions other = options_for({server.address()}, 0, 2);
  other.self.settings.seed = 8;
  ParameterClient second = other.client();
  const std::string refusal = message_of<ClusterError>([&] { second.connect(); });
  CHECK(contains(refusal, "it trains another job than worker 1: --seed is "));
}

TEST_CASE("workers on unlike devices are told so, although a GPU's model is padded otherwise") {
  WorkerHello on_cpu;
  WorkerHello on_gpu;
  on_gpu.arena = on_cpu.arena + 16;
  std::string_view("cuda 9.0").copy(on_gpu.settings.kernels.data(), 8);
  CHECK(contains(difference(on_cpu, on_gpu), "the kind of device"));
}

TEST_CASE("a server whose workers do not come fails, naming those that are missing" *
          unit::waits()) {
  constexpr double k_wait = unit::time_out(0.3); // In which the one that comes has to be there.
  Running server(0, 0, "", k_wait);
  WorkerOptions options = options_for({server.address()}, 1, 3);
  options.job.rendezvous_timeout = k_wait;
  ParameterClient client = options.client();
  const std::int64_t step = client.connect();
  CHECK_THROWS_AS(client.step(step, {1.0, 1, 1}), ClusterError);
  CHECK(server.finish().find("workers 0, 2 of 3 did not come") != std::string::npos);
}

TEST_CASE("garbage from one that holds the token ends its connection and nothing else") {
  Running server(0);
  const Address address = resolve("127.0.0.1", server.port()).front();
  for (const std::size_t length : {1UL, 16UL, 5000UL}) {
    const Fd link = dial_authenticated(
        address, k_token, introduce_self(LinkPurpose::parameter_server, 0, 1), after_seconds(5));
    send_all(link, std::vector<std::byte>(length, std::byte{0x5a}), after_seconds(5));
  }
  FrameHeader endless;
  endless.what = static_cast<std::uint32_t>(FrameType::hello);
  endless.size = ~0ULL;
  const Fd link = dial_authenticated(
      address, k_token, introduce_self(LinkPurpose::parameter_server, 0, 1), after_seconds(5));
  send_all(link, bytes_of(endless), after_seconds(5));
  check_close(work(options_for({server.address()}, 0, 1), 5), expected_after(5, 1));
  CHECK(server.finish() == "");
}

TEST_CASE("without the job's token nothing is served") {
  Running server(0);
  WorkerOptions options = options_for({server.address()}, 0, 1);
  options.job.task.token = "another token";
  ParameterClient client = options.client();
  CHECK_THROWS_AS(client.connect(), ClusterError);
}

} // namespace
} // namespace trainer
