#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "halves.h"
#include "ranks.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;
using Transport = CommOptions::Transport;

namespace {

constexpr std::size_t k_longest = 3'000'001;

/// Values whose sum depends on the order of addition, worked out once.
const std::vector<float>& values_of(int rank) {
  static const auto all = [] {
    std::array<std::vector<float>, 4> ranks;
    for (unsigned r = 0; r < ranks.size(); ++r) {
      std::vector<float>& values = ranks[r];
      values.resize(k_longest);
      for (std::size_t i = 0; i < k_longest; ++i) {
        const auto mixed = static_cast<std::uint32_t>((i + 1) * 2654435761U + r * 40503U);
        values[i] = (static_cast<float>(mixed >> 8) / 65536.F - 128.F) * (r % 2 == 0 ? 1.F : 1e-3F);
      }
    }
    return ranks;
  }();
  return all.at(static_cast<std::size_t>(rank));
}

/// Each sum that is expected is worked out once, by the first of all ranks that asks.
class Expected {
 public:
  using Make = std::vector<float> (*)(WireType wire, std::size_t count, int ranks);
  explicit Expected(Make make) : make_(make) {}

  const std::vector<float>& of(WireType wire, std::size_t count, int ranks) {
    const std::lock_guard lock(mutex_);
    auto [at, is_new] = sums_.try_emplace({wire, count, ranks});
    if (is_new) {
      at->second = make_(wire, count, ranks);
    }
    return at->second;
  }

 private:
  Make make_;
  std::mutex mutex_;
  std::map<std::tuple<WireType, std::size_t, int>, std::vector<float>> sums_;
};

/// The documented order: chunk c is added up from rank c+1 round to rank c.
std::vector<float> sum_in_order(WireType /*fp32*/, std::size_t count, int ranks) {
  const std::size_t share = (count + ranks - 1) / ranks;
  const std::size_t length = (share + 15) / 16 * 16;
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int chunk = static_cast<int>(i / length);
    float sum = values_of((chunk + 1) % ranks)[i];
    for (int k = 1; k < ranks; ++k) {
      sum += values_of((chunk + 1 + k) % ranks)[i];
    }
    sums[i] = sum;
  }
  return sums;
}

const std::vector<float>& expected_sum(std::size_t count, int ranks) {
  static Expected expected(sum_in_order);
  return expected.of(WireType::fp32, count, ranks);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  // memcmp takes no null pointer, which an empty buffer may have.
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void fill(std::span<float> buffer, int rank) {
  std::copy_n(values_of(rank).begin(), buffer.size(), buffer.begin());
}

void check_all_reduce(Transport transport) {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    std::mutex mutex;
    std::string wrong;
    const std::vector<std::size_t> sizes = {0,    1,     2,     15,     16,     17,     1000,
                                            4097, 16384, 16385, 101770, 262144, 1048583};
    run_ranks_cleanly(ranks, options_for(transport), [&](Communicator& communicator) {
      for (const std::size_t size : sizes) {
        const std::vector<float>& expected = expected_sum(size, ranks);
        std::vector<float> ordinary(size);
        const std::span<float> registered = communicator.allocate(size);
        fill(ordinary, communicator.rank());
        fill(registered, communicator.rank());
        communicator.all_reduce(ordinary, "ordinary");
        communicator.all_reduce(registered, "registered");
        const std::lock_guard lock(mutex);
        if (!same_bits(ordinary, expected)) {
          wrong += fmt::format("ordinary {} floats on rank {}; ", size, communicator.rank());
        }
        if (!same_bits(registered, expected)) {
          wrong += fmt::format("registered {} floats on rank {}; ", size, communicator.rank());
        }
      }
    });
    CHECK(wrong == "");
  }
}

/// The documented rounding: to 16 bits wherever a sum goes to another rank.
std::vector<float> rounded_sum_in_order(WireType wire, std::size_t count, int ranks) {
  const WireKernels& kernels = portable_wire_kernels(wire);
  const std::size_t share = (count + ranks - 1) / ranks;
  const std::size_t length = (share + 15) / 16 * 16;
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int chunk = static_cast<int>(i / length);
    std::uint16_t sum = 0;
    for (int k = 0; k < ranks; ++k) {
      const float own = values_of((chunk + 1 + k) % ranks)[i];
      k == 0 ? kernels.narrow(&sum, &own, 1) : kernels.add(&sum, &sum, &own, 1);
    }
    kernels.widen(&sums[i], &sum, 1);
  }
  return sums;
}

const std::vector<float>& expected_rounded(WireType wire, std::size_t count, int ranks) {
  static Expected expected(rounded_sum_in_order);
  return expected.of(wire, count, ranks);
}

void check_rounded(Transport transport) {
  for (const int ranks : {2, 3, 4}) {
    for (const WireType wire : {WireType::bf16, WireType::fp16}) {
      CAPTURE(ranks);
      CAPTURE(wire_type_name(wire));
      run_ranks_cleanly(ranks, options_for(transport), [&](Communicator& communicator) {
        for (const std::size_t size : {1UL, 17UL, 4097UL, 16385UL, 101770UL, 1048583UL}) {
          const std::vector<float>& expected = expected_rounded(wire, size, ranks);
          std::vector<float> ordinary(size);
          const std::span<float> registered = communicator.allocate(size);
          fill(ordinary, communicator.rank());
          fill(registered, communicator.rank());
          communicator.wait(communicator.start_all_reduce(ordinary, "ordinary", wire));
          communicator.wait(communicator.start_all_reduce(registered, "registered", wire));
          if (!same_bits(ordinary, expected) || !same_bits(registered, expected)) {
            throw Error(fmt::format("{} floats are wrong", size));
          }
        }
      });
    }
  }
}

void check_tickets(Transport transport) {
  constexpr int k_ranks = 3;
  constexpr int k_buckets = 100;
  run_ranks_cleanly(k_ranks, options_for(transport), [&](Communicator& communicator) {
    const std::span<float> all = communicator.allocate(k_buckets * 1000);
    for (int round = 0; round < 3; ++round) {
      fill(all, communicator.rank());
      std::vector<Communicator::Ticket> tickets;
      for (int b = 0; b < k_buckets; ++b) {
        tickets.push_back(communicator.start_all_reduce(all.subspan(b * 1000, 1000), "bucket"));
      }
      for (const auto ticket : tickets) {
        communicator.wait(ticket);
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        const float sum = values_of(0)[i] + values_of(1)[i] + values_of(2)[i];
        if (std::abs(all[i] - sum) > 1e-3F) {
          throw Error(fmt::format("bucket {} holds {} for {}", i / 1000, all[i], sum));
        }
      }
    }
  });
}

void check_broadcast(Transport transport) {
  constexpr int k_ranks = 3;
  run_ranks_cleanly(k_ranks, options_for(transport), [&](Communicator& communicator) {
    for (const std::size_t size : {0UL, 1UL, 4097UL, 3UL << 20}) {
      for (int root = 0; root < k_ranks; ++root) {
        std::vector<std::byte> bytes(size);
        const auto pattern = [&](std::size_t i) {
          return static_cast<std::byte>((i * 7 + i / 4096 + root) % 251);
        };
        if (communicator.rank() == root) {
          for (std::size_t i = 0; i < size; ++i) {
            bytes[i] = pattern(i);
          }
        }
        communicator.broadcast(bytes, root, "weights");
        for (std::size_t i = 0; i < size; ++i) {
          if (bytes[i] != pattern(i)) {
            throw Error(fmt::format("byte {} of {} is wrong", i, size));
          }
        }
      }
    }
  });
}

} // namespace

TEST_CASE("all ranks hold the bits of the sum in ring order, over TCP") {
  check_all_reduce(Transport::tcp);
}
TEST_CASE("16-bit sums have the bits of their rounding in ring order, over TCP") {
  check_rounded(Transport::tcp);
}
TEST_CASE("16-bit sums have the bits of their rounding in ring order, by shared memory") {
  check_rounded(Transport::shared_memory);
}
TEST_CASE("long buffers shared among streams have the bits of one, and fail as one") {
  CommOptions options = options_for(Transport::tcp);
  options.tcp_streams = 3;
  options.peer_timeout = unit::time_out(2);
  for (const int ranks : {2, 3}) {
    const auto thrown = run_ranks(ranks, options, [&](Communicator& communicator) {
      CHECK(communicator.describe().find("3 streams") != std::string::npos);
      CHECK(communicator.route(8 << 20, WireType::fp32).how.find("3 TCP streams") !=
            std::string::npos);
      CHECK(communicator.route(1 << 20, WireType::fp32).how.find("one TCP stream") !=
            std::string::npos);
      for (const std::size_t size : {std::size_t{1048583}, std::size_t{3000001}}) {
        for (const WireType wire : {WireType::fp32, WireType::bf16}) {
          std::vector<float> buffer(size);
          fill(buffer, communicator.rank());
          communicator.wait(communicator.start_all_reduce(buffer, "long", wire));
          if (!same_bits(buffer, wire == WireType::fp32 ? expected_sum(size, ranks)
                                                        : expected_rounded(wire, size, ranks))) {
            throw Error(fmt::format("{} floats are wrong", size));
          }
        }
      }
      std::vector<float> buffer(communicator.rank() == 0 ? 1500000 : 1600000);
      communicator.all_reduce(buffer, "unlike");
    });
    for (const std::string& text : thrown) {
      CAPTURE(text);
      CHECK(text.find("6000000 bytes") != std::string::npos);
      CHECK(text.find("6400000 bytes") != std::string::npos);
    }
  }
}
TEST_CASE("ranks of which one asks for fewer streams agree on those") {
  const HeldPort port;
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < 2; ++rank) {
    bodies.emplace_back([&, rank] {
      CommOptions options = options_for(Transport::tcp);
      options.tcp_streams = rank == 0 ? 5 : 2;
      const auto communicator = connect(cluster_of(rank, 2, port.number()), options);
      CHECK(communicator->describe().find("2 streams") != std::string::npos);
      std::vector<float> buffer(2 << 20, 1.F);
      communicator->all_reduce(buffer, "long");
      CHECK(buffer.back() == 2.F);
    });
  }
  for (const std::string& text : run_threads(bodies)) {
    CHECK(text == "");
  }
}
TEST_CASE("ranks that send unlike types are told so, both of them") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    const auto thrown = run_ranks(2, options_for(transport), [](Communicator& communicator) {
      std::vector<float> gradient(100000);
      communicator.wait(communicator.start_all_reduce(
          gradient, "gradient", communicator.rank() == 0 ? WireType::fp32 : WireType::bf16));
    });
    for (const std::string& text : thrown) {
      CHECK(text.find("as bf16") != std::string::npos);
    }
  }
}
TEST_CASE("started all-reduces finish in order while others wait, over TCP") {
  check_tickets(Transport::tcp);
}
TEST_CASE("a broadcast carries every byte from any root, over TCP") {
  check_broadcast(Transport::tcp);
}

TEST_CASE("all ranks hold the bits of the sum in ring order, by shared memory") {
  check_all_reduce(Transport::shared_memory);
}
TEST_CASE("started all-reduces finish in order while others wait, by shared memory") {
  check_tickets(Transport::shared_memory);
}
TEST_CASE("a broadcast carries every byte from any root, by shared memory") {
  check_broadcast(Transport::shared_memory);
}

TEST_CASE("a rank that is ahead by as many collectives as may be under way waits for the others") {
  constexpr std::size_t k_many = 100;
  run_ranks_cleanly(2, options_for(Transport::shared_memory), [](Communicator& communicator) {
    const std::span<float> registered = communicator.allocate(k_many);
    for (int round = 1; round <= 20; ++round) {
      if (communicator.rank() == 0) { // The other sleeps by then, and wakes up late.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      int told = communicator.rank() == 0 ? round : 0;
      communicator.broadcast(std::as_writable_bytes(std::span(&told, 1)), 0, "round");
      Communicator::Ticket last = 0;
      for (std::size_t i = 0; i < k_many; ++i) {
        registered[i] = static_cast<float>(round);
        last = communicator.start(Collective::Kind::all_reduce, registered.subspan(i, 1), "one");
      }
      communicator.wait(last);
      if (told != round || registered.back() != static_cast<float>(2 * round)) {
        throw Error(fmt::format("round {}: {}, {}", round, told, registered.back()));
      }
    }
  });
}

TEST_CASE("an all-reduce's two halves have its bits") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      run_ranks_cleanly(ranks, options_for(transport), [](Communicator& communicator) {
        if (const std::string wrong = wrong_halves(communicator); !wrong.empty()) {
          throw Error(wrong);
        }
      });
    }
  }
}

TEST_CASE("a barrier lets nobody through before all have come") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    std::atomic<int> arrived{0};
    run_ranks_cleanly(3, options_for(transport), [&](Communicator& communicator) {
      for (int round = 1; round <= 50; ++round) {
        ++arrived;
        communicator.barrier("round");
        if (arrived < 3 * round) {
          throw Error("a rank came through early");
        }
        communicator.barrier("next");
      }
    });
  }
}
