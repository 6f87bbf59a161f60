// Random bytes of the kernel's, for secrets and for what must be unlike in every process. Numbers
// that a run can be repeated with are random.h's.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace trainer {

/// Throws Error.
void fill_from_entropy(std::span<std::byte> bytes);

template <typename Value>
Value random_value() {
  static_assert(std::has_unique_object_representations_v<Value>);
  Value value{};
  fill_from_entropy(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

} // namespace trainer
