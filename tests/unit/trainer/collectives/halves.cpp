#include "halves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "trainer/collectives/records.h"

namespace trainer::test {
namespace {

void fill(std::span<float> buffer, int rank) {
  std::array<float, 977> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i) + 0.7F * static_cast<float>(rank)) *
                (rank % 2 == 0 ? 1.0F : 1e-3F);
  }
  for (std::size_t i = 0; i < buffer.size(); i += values.size()) {
    const auto part = buffer.subspan(i, std::min(values.size(), buffer.size() - i));
    std::copy_n(values.begin(), part.size(), part.begin());
  }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string wrong_in(Communicator& communicator, std::span<float> buffer, WireType wire) {
  const Chunks chunks(buffer.size(), communicator.world_size());
  const auto carry_out = [&](Collective::Kind kind) {
    communicator.wait(communicator.start(kind, buffer, "gradients", wire));
  };
  fill(buffer, communicator.rank());
  carry_out(Collective::Kind::all_reduce);
  std::vector<float> whole(buffer.begin(), buffer.end());

  fill(buffer, communicator.rank());
  carry_out(Collective::Kind::reduce_scatter);
  const auto of = [&](std::span<float> values, int rank) {
    return values.subspan(chunks.begin(rank), chunks.size(rank));
  };
  if (!same_bits(of(buffer, communicator.rank()), of(whole, communicator.rank()))) {
    return "scattered";
  }
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    if (rank != communicator.rank()) {
      const auto others = of(buffer, rank);
      std::fill(others.begin(), others.end(), 7.0F);
    }
  }
  carry_out(Collective::Kind::all_gather);
  return same_bits(buffer, whole) ? "" : "gathered";
}

} // namespace

std::string wrong_halves(Communicator& communicator) {
  std::string wrong;
  for (const std::size_t count : {0UL, 1UL, 17UL, 1000UL, 16'385UL, 101'770UL, 400'000UL}) {
    std::vector<float> ordinary(count);
    const std::span<float> registered = communicator.allocate(count);
    for (const WireType wire : {WireType::fp32, WireType::bf16, WireType::fp16}) {
      for (const std::span<float> buffer : {std::span(ordinary), registered}) {
        if (const std::string what = wrong_in(communicator, buffer, wire); !what.empty()) {
          wrong += fmt::format("{} {} floats as {}{}; ", what, count, wire_type_name(wire),
                               buffer.data() == registered.data() ? ", registered" : "");
        }
      }
    }
  }
  // Bytes that are no floats to keep: a signalling NaN, -0, a denormal.
  struct Record {
    std::array<std::uint32_t, 20> words;
  };
  const auto record_of = [](int rank) {
    Record record{};
    record.words = {0x7f800001, 0x80000000, 1, static_cast<std::uint32_t>(rank)};
    record.words.back() = 0xffffffff - static_cast<std::uint32_t>(rank);
    return record;
  };
  const auto records = all_gather(communicator, record_of(communicator.rank()), "records");
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    if (records[static_cast<std::size_t>(rank)].words != record_of(rank).words) {
      wrong += fmt::format("the record of rank {}", rank);
    }
  }
  return wrong;
}

} // namespace trainer::test
