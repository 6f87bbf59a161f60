// Small records of every rank, gathered on every rank: what ranks exchange beside tensors.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trainer/collectives/communicator.h"

namespace trainer {

/// Collective. `mine` has the same size on every rank. What rank r gave is at r times the length of
/// the result over the number of ranks.
std::vector<std::byte> all_gather_bytes(Communicator& communicator, std::span<const std::byte> mine,
                                        std::string_view name);

/// Collective: every rank's value, by rank.
template <typename Value>
std::vector<Value> all_gather(Communicator& communicator, const Value& mine,
                              std::string_view name) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const auto all = all_gather_bytes(communicator, std::as_bytes(std::span(&mine, 1)), name);
  std::vector<Value> values(static_cast<std::size_t>(communicator.world_size()));
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    std::memcpy(&values[rank], all.data() + rank * (all.size() / values.size()), sizeof(Value));
  }
  return values;
}

} // namespace trainer
