#include "trainer/collectives/collective.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr std::size_t k_floats_a_cache_line = 16;

/// "all_reduce"
const char* kind_name(Collective::Kind kind) {
  switch (kind) {
  case Collective::Kind::all_reduce:
    return "all_reduce";
  case Collective::Kind::reduce_scatter:
    return "reduce_scatter";
  case Collective::Kind::all_gather:
    return "all_gather";
  case Collective::Kind::broadcast:
    return "broadcast";
  case Collective::Kind::allocate:
    return "allocate";
  case Collective::Kind::barrier:
    break;
  }
  return "barrier";
}

} // namespace

std::string Collective::text() const {
  std::string text = kind_name(kind);
  if (kind != Kind::allocate) {
    text += fmt::format(" '{}'", name);
  }
  if (kind != Kind::barrier) {
    text += fmt::format(" of {} bytes", bytes.size());
  }
  if (kind == Kind::broadcast) {
    text += fmt::format(" from rank {}", root);
  }
  if (wire != WireType::fp32) {
    text += fmt::format(" as {}", wire_type_name(wire));
  }
  return text;
}

Call Collective::call() const {
  return {kind_name(kind), wire_type_name(wire), bytes.size(), name, text()};
}

Chunks::Chunks(std::size_t count_, int ranks) : count(count_) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t share = (count + n - 1) / n;
  length = (share + k_floats_a_cache_line - 1) / k_floats_a_cache_line * k_floats_a_cache_line;
}

std::size_t Chunks::begin(int chunk) const {
  return std::min(count, static_cast<std::size_t>(chunk) * length);
}

std::vector<Collective> gather_by_broadcasts(const Collective& gather, int self, int ranks) {
  const std::span<float> buffer(reinterpret_cast<float*>(gather.bytes.data()),
                                gather.bytes.size() / sizeof(float));
  const Chunks chunks(buffer.size(), ranks);
  if (gather.wire != WireType::fp32) {
    float* const own = chunks.of(buffer, self).data();
    const float* const from = own;
    sum_to_all(gather.wire, {&own, 1}, {&from, 1}, chunks.size(self));
  }
  std::vector<Collective> broadcasts;
  broadcasts.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    broadcasts.push_back({Collective::Kind::broadcast,
                          std::as_writable_bytes(chunks.of(buffer, rank)), rank, gather.name,
                          WireType::fp32});
  }
  return broadcasts;
}

} // namespace trainer
