// Parameter servers and workers for tests: threads of this process, which train 1008 parameters
// towards a target of their own.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/thread.h"
#include "tests/unit/trainer/device/test_device.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/server.h"

namespace trainer::test {

inline constexpr std::size_t k_count = 1008;
inline constexpr const char* k_token = "a token for tests";
inline constexpr double k_peer_timeout = 4;

/// A server in a thread of its own.
class Running {
 public:
  explicit Running(int index, int port = 0, std::string snapshots = "", double wait = 20,
                   double peer_timeout = k_peer_timeout)
      : server_(job_of(index, std::move(snapshots), wait, peer_timeout), {"127.0.0.1", port},
                test_device(), [this](const std::string& text) { note(text); }),
        thread_([this] { server_.run(); }) {}
  ~Running() { server_.stop(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(server_.port()); }
  int port() const { return server_.port(); }
  std::string finish() { return thread_.thrown(); }
  bool has_said(const std::string& part) {
    const std::lock_guard lock(mutex_);
    return said_.find(part) != std::string::npos;
  }

 private:
  static PsJob job_of(int index, std::string snapshots, double wait, double peer_timeout) {
    PsJob job;
    job.task.servers.resize(static_cast<std::size_t>(index) + 1);
    job.task.index = index;
    job.task.token = k_token;
    job.snapshot_dir = std::move(snapshots);
    job.rendezvous_timeout = wait;
    job.peer_timeout = peer_timeout;
    return job;
  }
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    said_ += text + "\n";
  }
  std::mutex mutex_;
  std::string said_;
  ParameterServer server_;
  unit::Thread thread_;
};

/// What a worker goes by.
struct WorkerOptions {
  PsJob job;
  WorkerHello self;

  ParameterClient client(
      std::size_t count = k_count, Notice notice = [](const auto&) {}) const {
    return {job, self, count, std::move(notice)};
  }
};

WorkerOptions options_for(std::vector<std::string> servers, int worker, int workers);

/// The job of one worker that trains by Adam, two passes of `rows` in each of `steps` steps.
PsJob training_job(std::vector<std::string> servers, const Buckets& buckets, std::size_t rows,
                   std::int64_t steps);

/// What a worker does; its last values.
std::vector<float> work(
    const WorkerOptions& options, std::int64_t steps,
    const std::function<void(std::int64_t)>& before_step = {},
    std::function<void(const std::string&)> notice = [](const auto&) {});

/// The values of one process that does what all workers do.
std::vector<float> expected_after(std::int64_t steps, int workers,
                                  WireType gradients = WireType::fp32);

void check_close(const std::vector<float>& a, const std::vector<float>& b);

} // namespace trainer::test
