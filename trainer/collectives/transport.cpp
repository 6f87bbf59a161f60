#include "trainer/collectives/transport.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {
namespace {

constexpr std::size_t k_floats_a_cache_line = 16;

}

std::string Collective::text() const {
  switch (kind) {
  case Kind::all_reduce:
    return fmt::format("all_reduce '{}' of {} bytes{}{}", name, bytes.size(),
                       wire == WireType::fp32 ? "" : " as ",
                       wire == WireType::fp32 ? "" : wire_type_name(wire));
  case Kind::broadcast:
    return fmt::format("broadcast '{}' of {} bytes from rank {}", name, bytes.size(), root);
  case Kind::allocate:
    return fmt::format("allocate of {} bytes", bytes.size());
  case Kind::barrier:
    break;
  }
  return fmt::format("barrier '{}'", name);
}

Chunks::Chunks(std::size_t count_, int ranks) : count(count_) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t share = (count + n - 1) / n;
  length = (share + k_floats_a_cache_line - 1) / k_floats_a_cache_line * k_floats_a_cache_line;
}

std::size_t Chunks::begin(int chunk) const {
  return std::min(count, static_cast<std::size_t>(chunk) * length);
}

} // namespace trainer
