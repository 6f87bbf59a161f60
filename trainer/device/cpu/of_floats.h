// Adapts a kernel of float32 to a table whose activations are typed: the CPU keeps all of them in
// float32.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/text_kernels.h"

namespace trainer {
namespace {

template <typename T>
inline const T& plain(const T& other) {
  return other;
}
inline Stream& plain(Stream& stream) { return stream; }
inline const float* plain(const ConstTypedPointer& x) {
  return static_cast<const float*>(x.memory);
}
inline float* plain(const TypedPointer& x) { return static_cast<float*>(x.memory); }
inline Heads<const float*> plain(const Heads<ConstTypedPointer>& x) {
  return {plain(x.query), plain(x.key), plain(x.value), x.stride};
}
inline Heads<float*> plain(const Heads<TypedPointer>& x) {
  return {plain(x.query), plain(x.key), plain(x.value), x.stride};
}

template <auto Kernel>
struct OfFloats {
  template <typename... Parameters>
  using Function = void (*)(Parameters...);

  // NOLINTNEXTLINE(google-explicit-constructor): converts within the table of kernels.
  template <typename... Parameters>
  constexpr operator Function<Parameters...>() const {
    return [](Parameters... of) { Kernel(plain(of)...); };
  }
};

} // namespace
} // namespace trainer
