#include "tests/unit/trainer/strategy/parameter_server/raw_worker.h"

#include "tests/unit/waiting.h"
#include "trainer/job/frames.h"
#include "trainer/job/handshake.h"

namespace trainer::test {

WorkerHello RawWorker::hello(int worker, int workers) {
  WorkerHello hello;
  hello.worker = worker;
  hello.workers = workers;
  hello.policy.snapshot_every = 1;
  hello.settings.seed = 7;
  hello.arena = 800;
  return hello;
}

RawWorker::RawWorker(const Running& server, const WorkerHello& hello)
    : link_(dial_authenticated(resolve("127.0.0.1", server.port()).front(), k_token,
                               introduce_self(LinkPurpose::parameter_server,
                                              static_cast<int>(hello.worker),
                                              static_cast<int>(hello.workers)),
                               after_seconds(5))) {
  send_body(FrameType::hello, bytes_of(hello), 0);
}

void RawWorker::send_body(FrameType type, std::span<const std::byte> fields, std::size_t size) {
  std::vector<std::byte> body(fields.begin(), fields.end());
  body.resize(body.size() + size);
  send_frame(link_, static_cast<std::uint32_t>(type), body, after_seconds(5));
}

std::vector<FrameType> RawWorker::read_until(FrameType type) {
  std::vector<FrameType> before;
  for (;;) {
    const Frame frame = receive_frame(link_, k_longest_text, after_seconds(unit::k_patience));
    const auto next = static_cast<FrameType>(frame.what);
    if (next == type) {
      return before;
    }
    if (next != FrameType::heartbeat) {
      before.push_back(next);
    }
  }
}

} // namespace trainer::test
