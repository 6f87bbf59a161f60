// FP8: its two types value by value, and products of what is rounded to them, their source run on
// the CPU, or on a GPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trainer/device/fp8.h"

using namespace trainer;

namespace {

constexpr float k_infinite = std::numeric_limits<float>::infinity();

/// Every finite value of a type that is not negative, in order: those of codes 0 to its largest.
template <typename Type>
std::vector<float> values_of() {
  std::vector<float> values;
  for (int code = 0; code <= Type::k_largest_code; ++code) {
    values.push_back(Type::widen(static_cast<std::uint8_t>(code)));
  }
  return values;
}

/// Each value, what lies halfway to the next, and their neighbours as float32.
template <typename Type>
std::vector<float> cases_of() {
  const std::vector<float> values = values_of<Type>();
  std::vector<float> cases;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float next = i + 1 < values.size() ? values[i + 1] : 2 * values[i];
    for (const float at : {values[i], values[i] + (next - values[i]) / 2}) {
      for (const float value : {std::nextafter(at, 0.0F), at, std::nextafter(at, k_infinite)}) {
        cases.push_back(value);
        cases.push_back(-value);
      }
    }
  }
  return cases;
}

/// The nearest value; of two as near the one with an even code; at most the largest.
template <typename Type>
float nearest(float value) {
  static const std::vector<float> values = values_of<Type>();
  const double size = std::abs(double{value});
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double distance = std::abs(values[i] - size);
    const double least = std::abs(values[best] - size);
    best = distance < least || (distance == least && i % 2 == 0) ? i : best;
  }
  return std::copysign(values[best], value);
}

template <typename Type>
void check_type(float largest, float least_normal, float least) {
  const std::vector<float> values = values_of<Type>();
  CHECK(values[0] == 0);
  CHECK(values[1] == least);
  CHECK(values.back() == largest);
  CHECK(Type::narrow(least_normal) == 1 << (23 - Type::k_shift));
  for (std::size_t i = 1; i < values.size(); ++i) {
    CHECK(values[i] > values[i - 1]);
  }
  for (const float value : cases_of<Type>()) {
    CAPTURE(value);
    CHECK(float_bits(Type::widen(Type::narrow(value))) == float_bits(nearest<Type>(value)));
    CHECK(Type::narrow_two(value, largest) == (Type::k_largest_code << 8 | Type::narrow(value)));
  }
  CHECK(Type::widen(Type::narrow(k_infinite)) == largest);
  CHECK(Type::widen(Type::narrow(-k_infinite)) == -largest);
  CHECK(std::isnan(Type::widen(Type::narrow(std::nanf("")))));
}

} // namespace

TEST_CASE("a value becomes the nearest of FP8's two types, or the even one of two as near") {
  check_type<E4m3>(448, std::ldexp(1.0F, -6), std::ldexp(1.0F, -9));
  check_type<E5m2>(57344, std::ldexp(1.0F, -14), std::ldexp(1.0F, -16));
}

TEST_CASE("a tensor's scale is a power of two that brings its largest magnitude to the type's") {
  const auto check = [](auto type, float largest) {
    using Type = decltype(type);
    for (const float size : {1e-30F, 1e-3F, 0.875F, 0.8750001F, 1.0F, 1.75F, 448.0F, 3e38F}) {
      const Fp8Scale scale = Type::scale_for(float_bits(size));
      CAPTURE(size);
      CHECK(size * scale.to <= largest);
      CHECK(2 * size * scale.to > largest);
      CHECK(scale.to * scale.from == 1);
      CHECK(std::ldexp(0.5F, std::ilogb(scale.to) + 1) == scale.to);
    }
    CHECK(Type::scale_for(0).to == 1);
    CHECK(Type::scale_for(0).from == 1);
    const Fp8Scale least = Type::scale_for(1); // Of a subnormal.
    CHECK(least.to * least.from == 1);
    for (const float size : {k_infinite, std::nanf("")}) {
      CHECK(std::isnan(Type::scale_for(float_bits(size)).to));
      CHECK(std::isnan(Type::scale_for(float_bits(size)).from));
    }
  };
  check(E4m3{}, 448);
  check(E5m2{}, 57344);
}
