#include "trainer/comm/ring.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>

#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>

#include "trainer/comm/memory.h"
#include "trainer/comm/reduce.h"

namespace trainer {
namespace {

constexpr std::size_t k_segment = 128UL * 1024; ///< Bytes: with what it is added to, within L2.
/// What is received begins near the beginning of a page in the kernel's memory. Copied to the same
/// place of another page, or just behind, it takes some cores half as long again.
constexpr std::size_t k_half_page = 2048;
constexpr std::size_t k_slice = 256UL * 1024;
constexpr std::size_t k_slices_at_once = 4; ///< Their steps take turns, so that none waits for one.
constexpr std::size_t k_longest_send = 512UL * 1024;
constexpr std::size_t k_short_of_two = 64UL * 1024; ///< Bytes that two ranks swap whole.
constexpr std::size_t k_short = 8UL * 1024;         ///< The same for more ranks.
constexpr std::uint32_t k_header_magic = 0x54444331;

struct Header {
  std::uint32_t magic = k_header_magic;
  Collective::Kind kind = Collective::Kind::barrier;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::int32_t root = 0;
  std::uint32_t reserved = 0;
  std::array<char, 48> name{};

  bool operator==(const Header&) const = default;

  std::string text() const {
    Collective shown;
    shown.kind = kind;
    shown.root = root;
    shown.name.assign(name.data(), strnlen(name.data(), name.size()));
    shown.bytes = {static_cast<std::byte*>(nullptr), bytes};
    return fmt::format("{} (collective {})", shown.text(), number);
  }
};

/// One step of a collective.
struct Step {
  static constexpr std::size_t k_at_once = SIZE_MAX;

  std::span<const std::byte> send;
  std::span<std::byte> receive;
  bool add = false;                 ///< Add what is received to what is there, as floats.
  std::size_t forwards = k_at_once; ///< Sends what that step received, as far as it has come.
};

class Ring final : public Carrier {
 public:
  Ring(RingLinks links, Health& health)
      : links_(std::move(links)), health_(health),
        segment_memory_((k_half_page + k_segment) / sizeof(float)),
        segment_(segment_memory_.floats().subspan(k_half_page / sizeof(float))) {}

  std::string describe() const override { return "ring over TCP"; }

  std::span<float> allocate(std::size_t count) override {
    std::span<float> floats = memory_.emplace_back(count).floats();
    Collective collective;
    collective.kind = Collective::Kind::allocate;
    collective.bytes = std::as_writable_bytes(floats);
    carry_out(std::move(collective));
    return floats;
  }

  void carry_out(Collective collective) override {
    header_ = make_header(collective);
    switch (collective.kind) {
    case Collective::Kind::all_reduce:
      all_reduce(collective.bytes);
      break;
    case Collective::Kind::broadcast:
      broadcast(collective.bytes, collective.root);
      break;
    case Collective::Kind::barrier:
    case Collective::Kind::allocate:
      go_round(std::as_writable_bytes(std::span(&token_, 1)));
      break;
    }
    ++done_;
  }

 private:
  int n() const { return static_cast<int>(links_.members.size()); }
  int wrap(int position) const { return ((position % n()) + n()) % n(); }
  int next_rank() const {
    return links_.members[static_cast<std::size_t>(wrap(links_.position + 1))];
  }
  int previous_rank() const {
    return links_.members[static_cast<std::size_t>(wrap(links_.position - 1))];
  }

  Header make_header(const Collective& collective) const {
    Header header;
    header.kind = collective.kind;
    header.number = done_;
    header.bytes = collective.bytes.size();
    header.root = collective.root;
    std::copy_n(collective.name.begin(), std::min(collective.name.size(), header.name.size() - 1),
                header.name.begin());
    return header;
  }

  void all_reduce(std::span<std::byte> bytes) {
    if (bytes.size() <= (n() == 2 ? k_short_of_two : k_short)) {
      go_round(bytes);
      add_up(bytes);
      return;
    }
    float* floats = reinterpret_cast<float*>(bytes.data());
    const Chunks chunks(bytes.size() / sizeof(float), n());
    const auto chunk = [&](int position) {
      const int c = wrap(position);
      return std::as_writable_bytes(std::span(floats + chunks.begin(c), chunks.size(c)));
    };
    std::vector<Step> steps;
    const std::size_t slices = (chunks.length * sizeof(float) + k_slice - 1) / k_slice;
    steps.reserve(slices * 2 * links_.members.size());
    for (std::size_t first = 0; first < slices; first += k_slices_at_once) {
      const std::size_t group = std::min(k_slices_at_once, slices - first);
      for (int s = 0; s < 2 * (n() - 1); ++s) {
        const bool add = s < n() - 1;
        for (std::size_t i = first; i < first + group; ++i) {
          steps.push_back({slice(chunk(links_.position - 1 - s), i),
                           slice(chunk(links_.position - 2 - s), i), add,
                           s == 0 ? Step::k_at_once : steps.size() - group});
        }
      }
    }
    run(steps);
  }

  static std::span<std::byte> slice(std::span<std::byte> chunk, std::size_t i) {
    const std::size_t begin = std::min(chunk.size(), i * k_slice);
    return chunk.subspan(begin, std::min(k_slice, chunk.size() - begin));
  }

  /// Every rank gets every rank's bytes, in gathered_, the place of rank p at p times their length.
  void go_round(std::span<std::byte> bytes) {
    gathered_.resize(bytes.size() * static_cast<std::size_t>(n()));
    const auto place = [&](int position) {
      return std::span(gathered_).subspan(static_cast<std::size_t>(wrap(position)) * bytes.size(),
                                          bytes.size());
    };
    std::copy(bytes.begin(), bytes.end(), place(links_.position).begin());
    std::vector<Step> steps;
    steps.reserve(2 * links_.members.size());
    for (int s = 0; s < n() - 1; ++s) {
      steps.push_back({place(links_.position - s), place(links_.position - 1 - s), false,
                       s == 0 ? Step::k_at_once : steps.size() - 1});
    }
    run(steps);
  }

  void add_up(std::span<std::byte> bytes) {
    float* out = reinterpret_cast<float*>(bytes.data());
    const std::size_t count = bytes.size() / sizeof(float);
    const Chunks chunks(count, n());
    std::vector<const float*> in(static_cast<std::size_t>(n()));
    for (int c = 0; c < n(); ++c) {
      for (int k = 0; k < n(); ++k) {
        in[static_cast<std::size_t>(k)] = reinterpret_cast<const float*>(gathered_.data()) +
                                          static_cast<std::size_t>(wrap(c + 1 + k)) * count +
                                          chunks.begin(c);
      }
      float* to = out + chunks.begin(c);
      sum_to_all({&to, 1}, in, chunks.size(c));
    }
  }

  void broadcast(std::span<std::byte> bytes, int root) {
    const int distance = wrap(links_.position - root);
    std::vector<Step> steps(1);
    if (distance == 0) {
      steps[0].send = bytes;
    } else {
      steps[0].receive = bytes;
      if (distance != n() - 1) {
        steps.push_back({bytes, {}, false, 0});
      }
    }
    run(steps);
  }

  /// Sends and receives all steps, headers first.
  void run(std::span<const Step> steps) {
    Progress at;
    while (true) {
      const bool sent = send_some(steps, at);
      const bool received = receive_some(steps, at);
      skip_empty(steps, at);
      const bool may_send = sendable(steps, at) > 0 || at.header_sent < sizeof(Header);
      const bool may_receive =
          at.header_received < sizeof(Header) || at.receive_step < steps.size();
      if (!may_send && !may_receive && at.send_step == steps.size()) {
        return;
      }
      if (!sent && !received) {
        await(may_send, may_receive);
      }
    }
  }

  struct Progress {
    std::size_t header_sent = 0;
    std::size_t header_received = 0;
    Header header;                ///< The previous rank's.
    std::size_t send_step = 0;    ///< The step being sent,
    std::size_t sent = 0;         ///< and how many of its bytes have been.
    std::size_t receive_step = 0; ///< The same for receiving:
    std::size_t received = 0;     ///< received and added, whole floats only where they are added.
    std::size_t held = 0;         ///< Bytes of an incomplete float at the start of segment_.
  };

  static void skip_empty(std::span<const Step> steps, Progress& at) {
    while (at.send_step < steps.size() && at.sent == steps[at.send_step].send.size()) {
      ++at.send_step;
      at.sent = 0;
    }
    while (at.receive_step < steps.size() && at.received == steps[at.receive_step].receive.size()) {
      ++at.receive_step;
      at.received = 0;
    }
  }

  /// Bytes of the current step that may be sent now.
  static std::size_t sendable(std::span<const Step> steps, const Progress& at) {
    if (at.send_step == steps.size()) {
      return 0;
    }
    const Step& step = steps[at.send_step];
    const std::size_t all = step.send.size();
    if (step.forwards == Step::k_at_once || step.forwards < at.receive_step) {
      return all - at.sent;
    }
    return step.forwards == at.receive_step ? std::min(all, at.received) - at.sent : 0;
  }

  bool send_some(std::span<const Step> steps, Progress& at) {
    skip_empty(steps, at);
    const std::size_t ready = std::min(sendable(steps, at), k_longest_send);
    const std::size_t header_left = sizeof(Header) - at.header_sent;
    if (header_left == 0 && ready == 0) {
      return false;
    }
    std::array<iovec, 2> parts{};
    std::size_t used = 0;
    if (header_left > 0) {
      parts[used++] = {reinterpret_cast<std::byte*>(&header_) + at.header_sent, header_left};
    }
    if (ready > 0) {
      parts[used++] = {const_cast<std::byte*>(steps[at.send_step].send.data()) + at.sent, ready};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = used;
    const ssize_t sent = sendmsg(links_.next.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        return false;
      }
      health_.fail_link(fmt::format("rank {} lost its data connection to {}: {}", own_rank(),
                                    health_.name(next_rank()), error_text(errno)));
    }
    const std::size_t of_header = std::min(static_cast<std::size_t>(sent), header_left);
    at.header_sent += of_header;
    at.sent += static_cast<std::size_t>(sent) - of_header;
    return true;
  }

  bool receive_some(std::span<const Step> steps, Progress& at) {
    if (at.header_received < sizeof(Header)) {
      const auto rest = writable_bytes_of(at.header).subspan(at.header_received);
      const std::size_t received = receive(rest);
      at.header_received += received;
      if (at.header_received == sizeof(Header)) {
        compare(at.header);
      }
      return received > 0;
    }
    skip_empty(steps, at);
    if (at.receive_step == steps.size()) {
      return false;
    }
    const Step& step = steps[at.receive_step];
    const std::span<std::byte> rest = step.receive.subspan(at.received);
    if (!step.add) {
      const std::size_t received = receive(rest);
      at.received += received;
      return received > 0;
    }
    const std::span<std::byte> segment = std::as_writable_bytes(segment_);
    const std::size_t wanted = std::min(rest.size(), segment.size());
    const std::size_t received = receive(segment.subspan(at.held, wanted - at.held));
    at.held += received;
    const std::size_t floats = at.held / sizeof(float);
    add_into(reinterpret_cast<float*>(rest.data()), segment_.data(), floats);
    const std::size_t added = floats * sizeof(float);
    at.received += added;
    at.held -= added;
    std::memmove(segment.data(), segment.data() + added, at.held);
    return received > 0;
  }

  /// What has arrived, up to the length of `into`; 0: nothing yet.
  std::size_t receive(std::span<std::byte> into) {
    const ssize_t received = recv(links_.previous.get(), into.data(), into.size(), 0);
    if (received > 0) {
      return static_cast<std::size_t>(received);
    }
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
      return 0;
    }
    health_.fail_link(fmt::format("rank {} lost its data connection from {}: {}", own_rank(),
                                  health_.name(previous_rank()),
                                  received == 0 ? "connection closed" : error_text(errno)));
  }

  void compare(const Header& theirs) {
    if (theirs == header_) {
      return;
    }
    if (theirs.magic != k_header_magic) {
      health_.fail(fmt::format("rank {} received something else than a collective from {}",
                               own_rank(), health_.name(previous_rank())));
    }
    Header printable = theirs;
    std::replace_if(
        printable.name.begin(), printable.name.end(),
        [](char c) { return c != '\0' && (c < ' ' || c > '~'); }, '?');
    health_.fail(fmt::format("the ranks' collectives differ: {} is at {}, {} at {}",
                             health_.name(previous_rank()), printable.text(),
                             health_.name(own_rank()), header_.text()));
  }

  int own_rank() const { return links_.members[static_cast<std::size_t>(links_.position)]; }

  void await(bool may_send, bool may_receive) {
    std::array<pollfd, 2> polled = {
        pollfd{links_.previous.get(), static_cast<short>(may_receive ? POLLIN : 0), 0},
        pollfd{links_.next.get(), static_cast<short>(may_send ? POLLOUT : 0), 0}};
    if (poll(polled.data(), polled.size(), poll_timeout(after_seconds(k_check_seconds))) == 0) {
      health_.check();
    }
  }

  RingLinks links_;
  Health& health_;
  std::list<PrivateMemory> memory_;
  std::uint64_t done_ = 0;
  Header header_; ///< Of the collective that is being carried out.
  PrivateMemory segment_memory_;
  std::span<float> segment_;
  std::vector<std::byte> gathered_;
  std::uint32_t token_ = 0;
};

} // namespace

std::unique_ptr<Carrier> make_ring(RingLinks links, Health& health) {
  return std::make_unique<Ring>(std::move(links), health);
}

} // namespace trainer
