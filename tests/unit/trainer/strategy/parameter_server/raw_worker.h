// A worker of one server that sends what a test tells it to.
#pragma once

#include <deque>
#include <vector>

#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "trainer/job/handshake.h"
#include "trainer/strategy/parameter_server/channel.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer::test {

class RawWorker final : FrameHandler {
 public:
  /// Of a job with a snapshot an update, of which the server holds the first 800 of 1000 floats.
  static WorkerHello hello(int worker, int workers);

  explicit RawWorker(const Running& server, const WorkerHello& hello);

  /// With `size` bytes of zeros.
  void send(FrameType type, std::int64_t step, std::int64_t extra = 0, std::size_t size = 0);

  /// Reads until one of this type comes; the frames before it, beats left out. Throws LinkError
  /// where the server ends the connection instead.
  std::vector<FrameType> read_until(FrameType type);

 private:
  ReadParts payload_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override { frames_.push_back(header.type); }

  Channel channel_;
  std::vector<std::byte> payload_;
  std::deque<FrameType> frames_;
};

} // namespace trainer::test
