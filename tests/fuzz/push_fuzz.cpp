// Frames that a worker could send to a parameter server: none may be believed in its length, and
// what is accepted has to be what the server then adds up.
//
// An input is the job's type of gradients, a byte, then frames: type, step, generation, weight, a
// byte each, the latter three only in the frames that begin with them; how much more the frame says
// there is, two bytes, or what a push is due where both
// are 0xff; then so much, zeros where the
// input ends. An input of a first byte of 0x80 or more is bytes of a hello.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/strategy/parameter_server/session.h"

using namespace trainer;

namespace {

/// Of whose arena the first of so many servers holds sixteen floats in each of two buckets.
WorkerHello small_hello() {
  WorkerHello hello;
  hello.servers = 2048;
  hello.arena = std::size_t{2} << 15;
  return hello;
}
constexpr std::size_t k_held = 32;
constexpr std::uint8_t k_is_hello = 0x80;
constexpr std::size_t k_as_due = 0xffff;

void require(bool ok) {
  if (!ok) {
    std::abort();
  }
}

/// A server without a network: applies each push when it has come.
class Server {
 public:
  void accept(Session& session, const WorkerHello& hello) {
    WorkerHello small = small_hello(); // Another process' files are not this test's to open.
    small.settings.wire = hello.settings.wire;
    session.accept(small);
  }
  void serve(Session& session, FrameType type) {
    if (type == FrameType::hello) {
      accept(session, session.hello());
    } else if (type == FrameType::push) {
      const Contribution one = session.contribution();
      require(one.gradients.size() == 2 && one.weight > 0);
      store_.apply({&one, 1});
      session.drop_push();
    } else if (type == FrameType::pull) {
      session.send_parameters({}, store_.parameters());
    } else if (type == FrameType::goodbye) {
      session.over = true;
    }
  }

 private:
  CpuDevice device_;
  ShardStore store_{small_hello().ranges(), {}, device_};
};

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool is_empty() const { return left_ == 0; }
  std::uint8_t next() { return left_ == 0 ? 0 : (--left_, *data_++); }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

void send_whole(const Fd& link, std::span<const std::byte> bytes) {
  require(send(link.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

void drop_answers(const Fd& link) {
  std::byte bytes[4096];
  while (recv(link.get(), bytes, sizeof bytes, 0) > 0) {
  }
}

void feed(Session& session, const Fd& worker, Input input, std::size_t push_bytes) {
  while (!input.is_empty() && !session.over) {
    const auto type = static_cast<FrameType>(input.next());
    Request request;
    request.step = static_cast<std::int8_t>(input.next());
    request.generation = static_cast<std::int8_t>(input.next());
    request.weight = static_cast<std::int8_t>(input.next());
    const std::size_t low = input.next();
    const std::size_t length = low | static_cast<std::size_t>(input.next()) << 8;
    std::vector<std::byte> body;
    if (type >= FrameType::ask_state && type <= FrameType::next_batch) {
      const auto bytes = bytes_of(request);
      body.assign(bytes.begin(), bytes.end());
    }
    const std::size_t begin = body.size();
    body.resize(begin + (length == k_as_due ? push_bytes : length));
    for (std::size_t i = begin; i < body.size(); ++i) {
      body[i] = static_cast<std::byte>(input.next());
    }
    const FrameHeader header{.what = static_cast<std::uint32_t>(type), .size = body.size()};
    send_whole(worker, bytes_of(header));
    session.channel.receive(); // Not one byte of the body is there.
    send_whole(worker, body);
    session.channel.receive();
    drop_answers(worker);
    session.channel.flush();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd worker(ends[0]);
  Server server;
  Session session({}, Fd(ends[1]), [&](Session& one, FrameType type) { server.serve(one, type); });
  Input input(data, size);
  const std::uint8_t first = input.next();
  WorkerHello hello = small_hello();
  hello.settings.wire = first % 3;
  try {
    if (first >= k_is_hello) {
      const std::size_t given = std::min(size - 1, sizeof hello);
      std::memcpy(&hello, data + 1, given);
      check(hello);
      (void)hello.ranges();
      (void)difference(hello, small_hello());
      input = {data + 1 + given, size - 1 - given};
    }
    server.accept(session, hello);
    feed(session, worker, input, k_held * wire_size(hello.gradients()));
  } catch (const LinkError&) {
    return 0;
  }
  return 0;
}
