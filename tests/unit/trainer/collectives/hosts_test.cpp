#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "halves.h"
#include "ranks.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;

namespace {

const std::vector<std::vector<std::string>> k_layouts = {
    {"a", "a", "b", "b"}, {"a", "b", "a", "b", "b"}, {"a", "b", "b"}, {"a", "b", "c", "c"}};

CommOptions patient() { return options_for(CommOptions::Transport::automatic); }

void check_clean(const std::vector<std::string>& thrown) {
  for (const std::string& text : thrown) {
    CHECK(text == "");
  }
}

/// What a rank adds; the first of so many.
std::vector<float> values_on_host(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<float>((i * 2654435761U + static_cast<unsigned>(rank) * 40503U) % 10007) *
        0.37F;
  }
  return values;
}

constexpr std::array<std::size_t, 5> k_sizes = {1, 17, 5000, 101770, 524303};

} // namespace

TEST_CASE("hosts with several ranks each say how they are connected") {
  check_clean(run_on_hosts({"a", "a", "b"}, patient(), [](Communicator& communicator) {
    if (!communicator.describe().starts_with(
            "shared memory within 2 hosts, TCP ring between them, 3 ranks")) {
      throw Error(communicator.describe());
    }
  }));
}

TEST_CASE("hosts with one rank each are one ring over TCP") {
  check_clean(run_on_hosts({"a", "b", "c"}, patient(), [](Communicator& communicator) {
    if (!communicator.describe().starts_with("ring over TCP, 3 ranks")) {
      throw Error(communicator.describe());
    }
  }));
}

void check_sum_over_hosts(WireType wire, double allowed_error) {
  for (const auto& hosts : k_layouts) {
    std::vector<double> exact(k_sizes.back());
    std::vector<std::vector<float>> given;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      given.push_back(values_on_host(static_cast<int>(rank), k_sizes.back()));
      std::transform(exact.begin(), exact.end(), given.back().begin(), exact.begin(),
                     [](double sum, float own) { return sum + own; });
    }
    std::vector<std::vector<std::vector<float>>> sums(hosts.size()); // Of each rank.
    check_clean(run_on_hosts(hosts, patient(), [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      for (const std::size_t size : k_sizes) {
        std::vector<float> ordinary(given[rank].begin(),
                                    given[rank].begin() + static_cast<std::ptrdiff_t>(size));
        const std::span<float> registered = communicator.allocate(size);
        std::copy(ordinary.begin(), ordinary.end(), registered.begin());
        communicator.wait(communicator.start_all_reduce(ordinary, "ordinary", wire));
        communicator.wait(communicator.start_all_reduce(registered, "registered", wire));
        if (std::memcmp(ordinary.data(), registered.data(), registered.size_bytes()) != 0) {
          throw Error("registered and ordinary buffers differ");
        }
        sums[rank].push_back(std::move(ordinary));
      }
    }));
    for (std::size_t rank = 1; rank < sums.size(); ++rank) {
      CHECK(sums[rank].size() == sums[0].size());
      for (std::size_t i = 0; i < sums[0].size(); ++i) {
        CHECK(std::memcmp(sums[rank][i].data(), sums[0][i].data(),
                          sums[0][i].size() * sizeof(float)) == 0);
      }
    }
    for (const std::vector<float>& sum : sums[0]) {
      double largest_error = 0;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        largest_error = std::max(largest_error, std::abs(sum[i] - exact[i]));
      }
      CHECK(largest_error < allowed_error);
    }
  }
}

TEST_CASE("a sum over several hosts has the same bits on every rank") {
  check_sum_over_hosts(WireType::fp32, 0.01);
}

TEST_CASE("a 16-bit sum over several hosts has the same bits on every rank, and is near") {
  // Of sums up to 18,500, each rounded once a rank: half of the last of 8 and of 11 bits.
  check_sum_over_hosts(WireType::bf16, 5 * 32);
  check_sum_over_hosts(WireType::fp16, 5 * 4);
}

TEST_CASE("an all-reduce's two halves have its bits over several hosts") {
  for (const auto& hosts : k_layouts) {
    check_clean(run_on_hosts(hosts, patient(), [](Communicator& communicator) {
      if (const std::string wrong = wrong_halves(communicator); !wrong.empty()) {
        throw Error(wrong);
      }
    }));
  }
}

TEST_CASE("a broadcast reaches every rank of every host, from any root") {
  for (const auto& hosts : k_layouts) {
    check_clean(run_on_hosts(hosts, patient(), [](Communicator& communicator) {
      for (int root = 0; root < communicator.world_size(); ++root) {
        std::vector<float> weights(300'000, static_cast<float>(communicator.rank()));
        communicator.broadcast(std::as_writable_bytes(std::span(weights)), root, "weights");
        if (std::count(weights.begin(), weights.end(), static_cast<float>(root)) != 300'000) {
          throw Error(fmt::format("not the weights of rank {}", root));
        }
      }
    }));
  }
}

TEST_CASE("a rank that fails is named on every host") {
  for (const int victim : {0, 1, 2, 3}) {
    const auto thrown =
        run_on_hosts({"a", "a", "b", "b"}, patient(), [&](Communicator& communicator) {
          communicator.barrier("begin");
          communicator.set_step(7);
          if (communicator.rank() == victim) {
            throw DataError("shard 3 is damaged");
          }
          std::vector<float> gradient(1000);
          communicator.all_reduce(gradient, "gradient");
          communicator.all_reduce(gradient, "gradient");
        });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& text = thrown[static_cast<std::size_t>(rank)];
      CAPTURE(text);
      if (rank != victim) {
        CHECK(text.find(fmt::format("rank {} (", victim)) != std::string::npos);
        CHECK(text.find("gave up at step 7") != std::string::npos);
      }
    }
  }
}

TEST_CASE("collectives that differ between hosts are named, both of them") {
  const auto thrown =
      run_on_hosts({"a", "a", "b", "b"}, patient(), [&](Communicator& communicator) {
        std::vector<float> buffer(communicator.rank() < 2 ? 50'000 : 60'000);
        communicator.all_reduce(buffer, "grad");
      });
  for (const std::string& text : thrown) {
    CAPTURE(text);
    CHECK(text.find("200000 bytes") != std::string::npos);
    CHECK(text.find("240000 bytes") != std::string::npos);
  }
}
