#include "tests/unit/trainer/strategy/parameter_server/raw_worker.h"

#include <doctest/doctest.h>
#include <poll.h>

namespace trainer::test {

WorkerHello RawWorker::hello(int worker, int workers) {
  WorkerHello hello;
  hello.worker = worker;
  hello.workers = workers;
  hello.policy.snapshot_every = 1;
  hello.job = {{"seed", 7}};
  hello.ranges = {{0, 800}};
  hello.arena = 1000;
  return hello;
}

RawWorker::RawWorker(const Running& server, const WorkerHello& hello)
    : channel_(dial_authenticated(
                   resolve("127.0.0.1", server.port()).front(), k_token,
                   introduce_self(LinkPurpose::parameter_server, hello.worker, hello.workers),
                   after_seconds(5)),
               *this) {
  const std::string text = hello_text(hello);
  FrameHeader header;
  header.type = FrameType::hello;
  channel_.send_copy(header, std::as_bytes(std::span(text)));
}

void RawWorker::send(FrameType type, std::int64_t step, std::int64_t extra, std::size_t size) {
  FrameHeader header;
  header.type = type;
  header.step = step;
  header.extra = extra;
  header.weight = 1;
  channel_.send_copy(header, std::vector<std::byte>(size));
}

std::vector<FrameType> RawWorker::read_until(FrameType type) {
  std::vector<FrameType> before;
  for (;;) {
    while (!frames_.empty()) {
      const FrameType next = frames_.front();
      frames_.pop_front();
      if (next == type) {
        return before;
      }
      if (next != FrameType::beat) {
        before.push_back(next);
      }
    }
    pollfd polled = {channel_.fd(), POLLIN, 0};
    REQUIRE(poll(&polled, 1, 20'000) == 1);
    channel_.receive();
  }
}

ReadParts RawWorker::payload_of(const FrameHeader& header) {
  payload_.resize(header.bytes);
  return {payload_};
}

} // namespace trainer::test
