#include "trainer/strategy/parameter_server/coordinator.h"

#include <mutex>

#include <doctest/doctest.h>

#include "tests/unit/thread.h"
#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"
#include "trainer/job/handshake.h"
#include "trainer/strategy/parameter_server/client.h"

namespace trainer {
namespace {

using test::k_token;
using test::WorkerOptions;

constexpr std::int64_t k_batch_size = 10;

RunSettings settings_of(std::uint64_t samples) {
  RunSettings settings{};
  settings.batch_size = k_batch_size;
  settings.seed = 7;
  settings.samples = samples;
  return settings;
}

WorkerOptions link_to(int port, int worker, int workers, std::int64_t batches = 0) {
  WorkerOptions options;
  options.job.task.chief = "127.0.0.1:" + std::to_string(port);
  options.job.shared_memory = false;
  options.job.task.token = k_token;
  options.self.worker = worker;
  options.self.workers = workers;
  options.self.policy.sync = 0;
  options.self.settings = settings_of(100);
  options.self.settings.epochs_end = static_cast<std::uint64_t>(batches * k_batch_size);
  options.job.peer_timeout = 5;
  options.job.rendezvous_timeout = 20;
  return options;
}

/// A worker that has met the chief alone.
struct ChiefLink : ParameterClient {
  explicit ChiefLink(const WorkerOptions& options)
      : ParameterClient(options.job, options.self, 0, [](const std::string&) {}) {
    meet_chief();
  }
};

/// A coordinator of an asynchronous job in a thread of its own.
class Running {
 public:
  Running(int workers, std::int64_t batches, double wait = 20)
      : batches_(batches),
        coordinator_(
            job_of(workers, wait), {"127.0.0.1", 0},
            [=](std::uint64_t samples) {
              WorkerHello hello{.workers = workers, .settings = settings_of(samples)};
              hello.policy.sync = 0;
              hello.settings.epochs_end = static_cast<std::uint64_t>(batches * k_batch_size);
              return hello;
            },
            [this](const std::string& text) {
              const std::lock_guard lock(mutex_);
              said_ += text + "\n";
            },
            [this](const CoordinatorProgress& progress) { progress_ = progress; }),
        thread_([this] { coordinator_.run(); }) {}
  ~Running() { coordinator_.stop(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  WorkerOptions link(int worker, int workers) const {
    return link_to(coordinator_.port(), worker, workers, batches_);
  }
  std::string finish() { return thread_.thrown(); }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  /// After finish().
  const CoordinatorProgress& progress() const { return progress_; }

 private:
  static PsJob job_of(int workers, double wait) {
    PsJob job;
    job.task.workers.resize(static_cast<std::size_t>(workers));
    job.task.token = k_token;
    job.peer_timeout = unit::time_out(2);
    job.rendezvous_timeout = wait;
    return job;
  }

  std::int64_t batches_;
  std::mutex mutex_;
  std::string said_;
  CoordinatorProgress progress_;
  Coordinator coordinator_;
  unit::Thread thread_;
};

const Request k_first;
const Request k_one_batch = {.score = {.loss = 2, .correct = 3, .count = 10}};

/// A chief, or a server, that refuses whoever comes with this text.
class Refusing {
 public:
  Refusing(LinkPurpose purpose, std::string text)
      : listener_(listen_at(resolve("127.0.0.1", 0).front())),
        port_(local_address(listener_).port()), text_(std::move(text)),
        thread_([this, purpose] { run(purpose); }) {}
  int port() const { return port_; }
  std::string finish() { return thread_.thrown(); }

 private:
  void run(LinkPurpose purpose) {
    Acceptor acceptor(std::move(listener_), k_token, purpose);
    auto arrival = acceptor.next(after_seconds(unit::k_patience));
    REQUIRE(arrival);
    tune_link(arrival->link, unit::k_patience);
    send_frame(arrival->link, static_cast<std::uint32_t>(FrameType::refused),
               std::as_bytes(std::span(text_)), after_seconds(unit::k_patience));
    unit::wait_until([&] {
      try {
        receive_frame(arrival->link, k_longest_text, after_seconds(unit::k_patience));
        return false;
      } catch (const LinkError&) {
        return true; // It has read it, and gone.
      }
    });
  }

  Fd listener_;
  int port_;
  std::string text_;
  unit::Thread thread_; // Last: it uses the others.
};

TEST_CASE("what a chief says in refusing a worker stays one line, whatever it holds") {
  Refusing chief(LinkPurpose::coordinator, "other\n\x1b[2Jjob");
  try {
    const ChiefLink link(link_to(chief.port(), 0, 1));
    FAIL("it was not refused");
  } catch (const ClusterError& error) {
    const std::string text = error.what();
    CHECK(text.find("was refused by chief") != std::string::npos);
    CHECK(text.find_first_of("\n\x1b") == std::string::npos);
  }
  CHECK(chief.finish() == "");
}

TEST_CASE("what a server says in refusing a worker stays one line, whatever it holds") {
  Refusing server(LinkPurpose::parameter_server, "other\n\x1b[2Jjob");
  WorkerOptions options;
  options.job.task.servers = {"127.0.0.1:" + std::to_string(server.port())};
  options.job.task.token = k_token;
  try {
    options.client(16).connect();
    FAIL("it was not refused");
  } catch (const ClusterError& error) {
    const std::string text = error.what();
    CHECK(text.find("was refused by ps 0") != std::string::npos);
    CHECK(text.find_first_of("\n\x1b") == std::string::npos);
  }
  CHECK(server.finish() == "");
}

TEST_CASE("every batch is handed out once, and the reports add up") {
  Running running(2, 5);
  ChiefLink a(running.link(0, 2));
  ChiefLink b(running.link(1, 2));
  CHECK(a.next(k_first) == 0);
  CHECK(b.next(k_first) == 1);
  CHECK(a.next(k_one_batch) == 2);
  CHECK(a.next(k_one_batch) == 3);
  CHECK(b.next(k_one_batch) == 4);
  CHECK_FALSE(a.next(k_one_batch));
  a.goodbye();
  CHECK_FALSE(b.next(k_one_batch));
  b.goodbye();
  CHECK(running.finish().empty());
  CHECK(running.progress().done == 5);
  CHECK(running.progress().totals.count == 50);
  CHECK(running.progress().totals.correct == 15);
}

TEST_CASE("a worker that is lost is named, and its batch done by another") {
  Running running(2, 2);
  ChiefLink other(running.link(1, 2));
  {
    ChiefLink lost(running.link(0, 2));
    CHECK(lost.next(k_first) == 0);
    CHECK(other.next(k_first) == 1);
  }
  unit::wait_until([&] { return running.said().find("lost worker 0 (") != std::string::npos; });
  CHECK(other.next(k_one_batch) == 0);
  CHECK_FALSE(other.next(k_one_batch));
  other.goodbye();
  CHECK(running.finish().empty());
}

TEST_CASE("a worker of another job is refused with what differs, and one too many by number") {
  Running running(1, 1);
  WorkerOptions options = running.link(0, 1);
  options.self.settings.seed = 8;
  CHECK_THROWS_WITH_AS(ChiefLink{options}, doctest::Contains("--seed is 8 and 7"), ClusterError);
  options = running.link(1, 2);
  CHECK_THROWS_WITH_AS(ChiefLink{options}, doctest::Contains("the number of workers is 2 and 1"),
                       ClusterError);
  options = running.link(0, 1);
  options.job.task.token = "another";
  options.job.rendezvous_timeout = 1;
  CHECK_THROWS_AS(ChiefLink{options}, Error);
}

TEST_CASE("a coordinator whose workers do not come, or do not come back, says so" * unit::waits()) {
  Running alone(2, 5, 0.2);
  Running running(1, 5, unit::time_out(0.5)); // In which the one worker has to come.
  {
    ChiefLink worker(running.link(0, 1));
    CHECK(worker.next(k_first) == 0);
  }
  CHECK(alone.finish().find("workers 0, 1 of 2 did not come") != std::string::npos);
  const std::string why = running.finish();
  CHECK(why.find("no worker left; the last was worker 0 (") != std::string::npos);
  CHECK(why.find("0 of 5 batches are done") != std::string::npos);
}

TEST_CASE("a worker whose coordinator is gone says so at once") {
  auto running = std::make_unique<Running>(1, 5);
  ChiefLink worker(running->link(0, 1));
  CHECK(worker.next(k_first) == 0);
  running.reset();
  CHECK_THROWS_WITH_AS(worker.next(k_one_batch), doctest::Contains("lost chief (127.0.0.1:"),
                       PeerError);
}

} // namespace
} // namespace trainer
