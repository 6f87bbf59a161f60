// A worker of one server that sends what a test tells it to.
#pragma once

#include <vector>

#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer::test {

class RawWorker {
 public:
  /// Of a job with a snapshot an update, whose server holds 800 floats.
  static WorkerHello hello(int worker, int workers);

  explicit RawWorker(const Running& server, const WorkerHello& hello);

  /// With `size` bytes of zeros, behind `request` where given.
  void send(FrameType type, std::size_t size = 0) { send_body(type, {}, size); }
  void send(FrameType type, const Request& request, std::size_t size = 0) {
    send_body(type, bytes_of(request), size);
  }

  /// Reads until one of this type comes; the frames before it, heartbeats left out. Throws
  /// LinkError where the server ends the connection instead.
  std::vector<FrameType> read_until(FrameType type);

 private:
  void send_body(FrameType type, std::span<const std::byte> fields, std::size_t size);

  Fd link_;
};

} // namespace trainer::test
