// Every way of carrying collectives × every collective × every type × lengths that do not come out
// even, against what they must give.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "halves.h"
#include "mpi/threads_mpi.h"
#include "ranks.h"
#include "trainer/collectives/job_communicator.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/device/halves.h"
#include "trainer/errors.h"
#include "trainer/job/rendezvous.h"
#include "trainer/strategy/mirrored.h"

using namespace trainer;
using namespace trainer::test;
using Kind = Collective::Kind;
using Over = CommOptions::Transport;

namespace {

constexpr std::array<std::size_t, 10> k_counts = {0,  1,    2,      3,      15,
                                                  17, 1000, 16'385, 40'001, 270'001};
constexpr std::size_t k_longest = k_counts.back();
constexpr std::array k_types = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::u8};

/// Whole numbers, of which every type holds the sum of several, in whatever order they are added.
double whole_number(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + i / 251 + static_cast<std::size_t>(rank) * 11) % 23);
}
/// Numbers whose sum depends on that order.
double rough_number(int rank, std::size_t i) {
  return std::sin(static_cast<double>(i % 977 * 3 + 1) + 0.7 * rank) * (rank % 2 == 0 ? 1 : 1e-3);
}

void put(const Range& range, std::size_t i, double value) {
  std::byte* const to = range.data() + i * size_of(range.dtype());
  const auto store = [&](auto typed) { std::memcpy(to, &typed, sizeof typed); };
  switch (range.dtype()) {
  case DType::f32:
    return store(static_cast<float>(value));
  case DType::bf16:
    return store(Bf16::narrow(static_cast<float>(value)));
  case DType::f16:
    return store(Fp16::narrow(static_cast<float>(value)));
  case DType::f64:
    return store(value);
  case DType::u8:
    return store(static_cast<std::uint8_t>(value));
  case DType::i32:
    return store(static_cast<std::int32_t>(value));
  case DType::i16:
    return store(static_cast<std::int16_t>(value));
  }
}

/// What ranks hold, and what they add up to, worked out once and by the first that asks.
class Table {
 public:
  using Number = double (*)(int rank, std::size_t i);

  const std::byte* given(DType type, Number number, int rank) {
    return made({type, number, rank, 1}, [=](std::size_t i) { return number(rank, i); });
  }
  const std::byte* sum(DType type, int ranks) {
    return made({type, whole_number, 0, ranks}, [=](std::size_t i) {
      double all = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        all += whole_number(rank, i);
      }
      return all;
    });
  }

 private:
  using Key = std::tuple<DType, Number, int, int>;
  template <typename Value>
  const std::byte* made(const Key& key, const Value& value) {
    const std::lock_guard lock(mutex_);
    auto [at, is_new] = values_.try_emplace(key);
    if (is_new) {
      at->second.resize(k_longest);
      const Range range(at->second.data(), k_longest, std::get<DType>(key));
      for (std::size_t i = 0; i < k_longest; ++i) {
        put(range, i, value(i));
      }
    }
    return reinterpret_cast<const std::byte*>(at->second.data());
  }

  std::mutex mutex_;
  std::map<Key, std::vector<double>> values_;
};

Table& table() {
  static Table one;
  return one;
}

void copy_values(const Range& to, const std::byte* from, std::size_t first, std::size_t count) {
  const Range part = to.part(first, count);
  if (count > 0) {
    std::memcpy(part.data(), from + first * size_of(to.dtype()), part.size_bytes());
  }
}

/// Values [first, first + count) that are not those of `expected`, in words; "" if none.
std::string wrong_values(const Range& range, std::size_t first, std::size_t count,
                         const std::byte* expected) {
  const std::size_t size = size_of(range.dtype());
  for (std::size_t i = first; i < first + count; ++i) {
    if (i == first &&
        std::memcmp(range.data() + i * size, expected + i * size, count * size) == 0) {
      return "";
    }
    if (std::memcmp(range.data() + i * size, expected + i * size, size) != 0) {
      return fmt::format("value {} is wrong", i);
    }
  }
  return "";
}

std::string wrong_in(Communicator& communicator, Kind kind, const Range& range) {
  const int rank = communicator.rank();
  const int ranks = communicator.world_size();
  const auto given = [&](int of) { return table().given(range.dtype(), whole_number, of); };
  const Chunks chunks(range.count(), ranks);
  const std::size_t first = chunks.begin(rank);
  if (kind == Kind::all_gather && range.size_bytes() > 0) {
    std::memset(range.data(), 99, range.size_bytes());
    copy_values(range, given(rank), first, chunks.size(rank));
  } else {
    copy_values(range, given(rank), 0, range.count());
  }
  if (kind == Kind::broadcast) {
    communicator.broadcast(range, ranks - 1, "values");
    return wrong_values(range, 0, range.count(), given(ranks - 1));
  }
  communicator.wait(communicator.start(kind, range, "values"));
  if (kind == Kind::all_gather) {
    std::string wrong;
    for (int owner = 0; owner < ranks; ++owner) {
      wrong += wrong_values(range, chunks.begin(owner), chunks.size(owner), given(owner));
    }
    return wrong;
  }
  const std::byte* const sum = table().sum(range.dtype(), ranks);
  return kind == Kind::all_reduce ? wrong_values(range, 0, range.count(), sum)
                                  : wrong_values(range, first, chunks.size(rank), sum);
}

/// Bits of a sum that depend on its order: those of reduce_scatter and all_gather are all_reduce's.
std::string wrong_halves_of(Communicator& communicator, const Range& range) {
  const auto fill = [&] {
    copy_values(range, table().given(range.dtype(), rough_number, communicator.rank()), 0,
                range.count());
  };
  fill();
  communicator.all_reduce(range, "whole");
  const std::vector<std::byte> whole(range.data(), range.data() + range.size_bytes());
  fill();
  communicator.wait(communicator.start_reduce_scatter(range, "halves"));
  communicator.wait(communicator.start_all_gather(range, "halves"));
  return whole.empty() || std::memcmp(whole.data(), range.data(), whole.size()) == 0
             ? ""
             : "the halves differ";
}

std::string wrong_in(Communicator& communicator) {
  std::string wrong;
  for (const std::size_t count : k_counts) {
    const std::span<float> registered = communicator.allocate(2 * count);
    for (const DType type : k_types) {
      std::vector<double> ordinary(count);
      const std::array<void*, 2> places = {ordinary.data(), registered.data()};
      for (void* const memory : places) {
        const Range range(memory, count, type);
        const auto note = [&](const char* what, const std::string& why) {
          if (!why.empty()) {
            wrong +=
                fmt::format("{} of {} {}{} on rank {}: {}; ", what, count, dtype_name(type),
                            memory == places[1] ? ", registered" : "", communicator.rank(), why);
          }
        };
        if (type != DType::u8) {
          note("all_reduce", wrong_in(communicator, Kind::all_reduce, range));
          note("reduce_scatter", wrong_in(communicator, Kind::reduce_scatter, range));
          note("sum", wrong_halves_of(communicator, range));
        }
        note("all_gather", wrong_in(communicator, Kind::all_gather, range));
        note("broadcast", wrong_in(communicator, Kind::broadcast, range));
      }
    }
  }
  return wrong;
}

/// What all ranks found wrong.
class Found {
 public:
  std::function<void(Communicator&)> body() {
    return [this](Communicator& communicator) {
      const std::string one = wrong_in(communicator);
      const std::lock_guard lock(mutex_);
      text_ += one;
    };
  }
  std::string text() const { return text_.substr(0, 500); }

 private:
  std::mutex mutex_;
  std::string text_;
};

void check(const std::vector<std::string>& thrown) {
  for (const std::string& text : thrown) {
    CHECK(text == "");
  }
}

/// Ranks over an MPI of threads.
std::vector<std::string> run_over_mpi(int ranks, const std::function<void(Communicator&)>& body) {
  const ThreadsMpi mpi(ranks);
  const HeldPort port;
  const CommOptions options = options_for(Over::automatic);
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < ranks; ++rank) {
    bodies.emplace_back([&, rank] {
      Star star(cluster_of(rank, ranks, port.number()), options);
      auto health = std::make_unique<Health>(rank, star.who(), star.release_links(), options);
      auto transport = make_mpi(ThreadsMpi::join(rank), *health);
      const auto communicator =
          make_job_communicator(rank, ranks, std::move(health), std::move(transport), "threads");
      body(*communicator);
      communicator->barrier("end");
    });
  }
  return run_threads(bodies);
}

} // namespace

TEST_CASE("every collective of every type is right over TCP and by shared memory") {
  for (const Over transport : {Over::tcp, Over::shared_memory}) {
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(ranks);
      Found found;
      check(run_ranks(ranks, options_for(transport), found.body()));
      CHECK(found.text() == "");
    }
  }
}

TEST_CASE("every collective of every type is right between hosts, wherever their ranks are") {
  const std::vector<std::vector<std::string>> layouts = {
      {"a", "a", "b", "b"}, {"a", "b", "a", "b", "b"}, {"a", "b", "c", "c"}};
  for (const auto& hosts : layouts) {
    Found found;
    check(run_on_hosts(hosts, options_for(Over::automatic), found.body()));
    CHECK(found.text() == "");
  }
}

TEST_CASE("every collective of every type is right over MPI") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    Found found;
    check(run_over_mpi(ranks, found.body()));
    CHECK(found.text() == "");
  }
}

TEST_CASE("a sum over MPI has the bits of one over TCP") {
  std::vector<std::vector<float>> sums(2, std::vector<float>(1000));
  const auto into = [&](std::vector<float>& sum) {
    return [&](Communicator& communicator) {
      std::vector<float> values(sum.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] =
            std::sin(static_cast<float>(i + 1) * (1.F + static_cast<float>(communicator.rank())));
      }
      communicator.all_reduce(values, "values");
      if (communicator.rank() == 1) {
        sum = values;
      }
    };
  };
  check(run_over_mpi(3, into(sums[0])));
  check(run_ranks(3, options_for(Over::tcp), into(sums[1])));
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("over MPI, sums under way end in their order though ranks test them unevenly") {
  check(run_over_mpi(3, [](Communicator& communicator) {
    constexpr std::size_t k_buckets = 20;
    std::vector<std::vector<float>> buckets(k_buckets, std::vector<float>(100));
    Communicator::Ticket last = 0;
    for (std::size_t b = 0; b < k_buckets; ++b) {
      buckets[b].assign(100, static_cast<float>(b + 1));
      last = communicator.start_all_reduce(buckets[b], "bucket");
    }
    communicator.wait(last);
    for (std::size_t b = 0; b < k_buckets; ++b) {
      if (buckets[b] != std::vector<float>(100, static_cast<float>(3 * (b + 1)))) {
        throw Error(fmt::format("bucket {} is wrong", b));
      }
    }
  }));
}

TEST_CASE(
    "every collective of every type is right between replicas, and those of several workers") {
  for (const CrossDeviceOps ops : {CrossDeviceOps::shares, CrossDeviceOps::reduction_to_one,
                                   CrossDeviceOps::hierarchical_copy}) {
    for (const int replicas : {2, 3, 5}) {
      CAPTURE(replicas);
      Found found;
      run_replicas(replicas, ops, found.body());
      CHECK(found.text() == "");
    }
  }
  for (const Over transport : {Over::tcp, Over::shared_memory}) {
    Found found;
    check(run_ranks(2, options_for(transport),
                    [&](Communicator& between) { run_replicas(3, between, found.body()); }));
    CHECK(found.text() == "");
  }
}

TEST_CASE("a lone rank or replica keeps its values as they are, whatever would travel") {
  const auto keeps = [](Communicator& communicator) {
    for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}) {
      std::vector<float> values = {1.0F + 0x1p-20F, 3.F, -7e-30F};
      const std::vector<float> before = values;
      communicator.wait(communicator.start(kind, values, "alone", WireType::bf16));
      CHECK(values == before);
    }
  };
  keeps(*make_single_rank());
  run_replicas(1, CrossDeviceOps::shares, keeps);
  const auto alone = make_single_rank();
  run_replicas(1, *alone, keeps);
  Found found;
  run_replicas(1, CrossDeviceOps::shares, found.body());
  found.body()(*alone);
  CHECK(found.text() == "");
}

TEST_CASE("a sum of bytes is refused by its name, and so is a type that cannot travel as another") {
  const auto alone = make_single_rank();
  std::vector<std::byte> bytes(12);
  std::vector<double> doubles(2);
  CHECK_THROWS_WITH_AS(alone->all_reduce(bytes, "mask"),
                       "all_reduce 'mask' of 12 bytes: bytes cannot be summed, only gathered and "
                       "broadcast; give the type of the values",
                       Error);
  CHECK_THROWS_AS(alone->start_reduce_scatter(bytes, "mask"), Error);
  CHECK_THROWS_WITH_AS(
      alone->start_all_reduce(doubles, "squares", WireType::bf16),
      "all_reduce 'squares' of 16 bytes of fp64 as bf16: only float32 can be sent as another type",
      Error);
}

TEST_CASE("ranks that bring unlike types are told so, both of them") {
  for (const Over transport : {Over::tcp, Over::shared_memory}) {
    const auto thrown = run_ranks(2, options_for(transport), [](Communicator& communicator) {
      std::vector<double> values(1000);
      communicator.all_reduce(communicator.rank() == 0 ? Range(values)
                                                       : Range(values.data(), 2000, DType::f32),
                              "values");
    });
    for (const std::string& text : thrown) {
      CAPTURE(text);
      CHECK(text.find("of 8000 bytes of fp64") != std::string::npos);
    }
  }
}
