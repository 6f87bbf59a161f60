#include <future>
#include <list>

#include <doctest/doctest.h>

#include "tests/unit/trainer/strategy/parameter_server/raw_worker.h"
#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "trainer/errors.h"

// What a push carries: gradients as 16 bits, and no other length than is due.
namespace trainer {
namespace {

using namespace test;

TEST_CASE("16-bit gradients are rounded by the worker, through shared memory as over TCP") {
  for (const WireType wire : {WireType::bf16, WireType::fp16}) {
    CAPTURE(wire_type_name(wire));
    std::vector<std::vector<float>> ends;
    for (const bool shared : {false, true}) {
      std::list<Running> running;
      std::vector<std::string> addresses;
      for (int i = 0; i < 2; ++i) {
        addresses.push_back(running.emplace_back(i).address());
      }
      std::vector<std::future<std::vector<float>>> workers;
      for (int w = 0; w < 3; ++w) {
        workers.push_back(std::async(std::launch::async, [&, w] {
          WorkerOptions options = options_for(addresses, w, 3);
          options.job.shared_memory = shared;
          options.self.settings.wire = static_cast<std::int64_t>(wire);
          return work(options, 20);
        }));
      }
      for (auto& worker : workers) {
        ends.push_back(worker.get());
      }
    }
    check_close(ends.front(), expected_after(20, 3, wire));
    for (const auto& end : ends) {
      CHECK(end == ends.front());
    }
    CHECK(ends.front() != expected_after(20, 3));
  }
}

TEST_CASE("gradients that are final are on their way before the step that they are of") {
  for (const WireType wire : {WireType::fp32, WireType::bf16}) {
    CAPTURE(wire_type_name(wire));
    std::list<Running> running;
    std::vector<std::string> addresses;
    for (int i = 0; i < 2; ++i) {
      addresses.push_back(running.emplace_back(i).address());
    }
    WorkerOptions options = options_for(addresses, 0, 1);
    options.job.shared_memory = false;
    options.self.settings.wire = static_cast<std::int64_t>(wire);
    ParameterClient client = options.client();
    const std::int64_t step = client.connect();
    constexpr std::size_t k_final = 500;
    std::fill(client.gradients().begin(), client.gradients().end(), 1.0F);
    client.final(100);
    client.final(k_final);
    // Nobody would; here it shows what has gone.
    std::fill(client.gradients().begin(), client.gradients().begin() + k_final, -1.0F);
    client.step(step, {1.0, 1, 1});
    for (const float value : client.parameters()) {
      CHECK(value == doctest::Approx(-0.01F));
    }
    client.goodbye();
  }
}

TEST_CASE("a push of another length than the job's ends its connection, and the job goes on") {
  for (const WireType wire : {WireType::fp32, WireType::bf16, WireType::fp16}) {
    const std::size_t due = 800 * wire_size(wire);
    const char* name = wire_type_name(wire);
    CAPTURE(name);
    Running server(0);
    WorkerHello hello = RawWorker::hello(0, 1);
    hello.settings.wire = static_cast<std::int64_t>(wire);
    for (const std::size_t size : {due - 2, due + 2, 2 * due, due / 2, std::size_t{0}}) {
      CAPTURE(size);
      RawWorker wrong(server, hello);
      wrong.read_until(FrameType::state);
      wrong.send(FrameType::begin, {.generation = 1, .step = -1}, 3200);
      wrong.send(FrameType::gradients, size);
      const auto push = [&] {
        wrong.send(FrameType::push, {.generation = 1, .weight = 1}); // It may be closed by then.
        wrong.read_until(FrameType::parameters);
      };
      CHECK_THROWS(push());
      CHECK(server.has_said("it sent a message of unexpected length"));
    }
    RawWorker right(server, hello);
    right.read_until(FrameType::state);
    right.send(FrameType::begin, {.generation = 1, .step = -1});
    right.send(FrameType::gradients, due / 4);
    right.send(FrameType::pull, {.generation = 1}); // It begins anew.
    right.read_until(FrameType::parameters);
    right.send(FrameType::gradients, due / 2);
    right.send(FrameType::gradients, due / 2);
    right.send(FrameType::push, {.generation = 1, .weight = 1});
    CHECK(right.read_until(FrameType::parameters).empty());
    right.send(FrameType::goodbye);
    CHECK(server.finish() == "");
    CHECK(server.has_said("ends at step 1"));
  }
}

TEST_CASE("workers that would push gradients of unlike types are told so") {
  Running server(0);
  RawWorker first(server, RawWorker::hello(0, 2));
  first.read_until(FrameType::state);
  WorkerOptions options = options_for({server.address()}, 1, 2);
  options.self.policy.snapshot_every = 1;
  options.self.settings.wire = static_cast<std::int64_t>(WireType::bf16);
  ParameterClient second = options.client();
  try {
    second.connect();
    FAIL("it was accepted");
  } catch (const ClusterError& error) {
    const std::string text = error.what();
    CHECK(text.find("--communication-data-type is fp32 and bf16") != std::string::npos);
  }
}

} // namespace
} // namespace trainer
