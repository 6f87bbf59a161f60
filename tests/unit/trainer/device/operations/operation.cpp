#include "tests/unit/trainer/device/operations/operation.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>

namespace trainer::test {
namespace {

constexpr std::size_t k_behind = 16;
constexpr float k_untouched = 77; // Which bf16 has, too.

/// An array on a device, and what lies beside it.
class Placed {
 public:
  Placed(Device& device, const Array& array)
      : begin_(array.begin), count_(array.before.size()),
        is_halves_(array.is_activation && device.activation_type() == DType::bf16) {
    Values all(begin_, k_untouched);
    all.insert(all.end(), array.before.begin(), array.before.end());
    all.insert(all.end(), k_behind, k_untouched);
    if (is_halves_) {
      halves_.emplace_back(device, all);
    } else {
      floats_.emplace_back(device, std::move(all));
    }
  }
  TypedPointer pointer() {
    return (is_halves_ ? halves_.front().pointer() : TypedPointer(floats_.front().data())) + begin_;
  }
  bool is_halves() const { return is_halves_; }
  /// And fails the test if something lies beside it that was not there before.
  Values read() {
    const Values all = is_halves_ ? halves_.front().read() : floats_.front().read();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((i < begin_ || i >= begin_ + count_) && all[i] != k_untouched) {
        CAPTURE(i);
        FAIL_CHECK("written beside the array");
      }
    }
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {first, first + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  std::size_t begin_;
  std::size_t count_;
  bool is_halves_;
  std::vector<On<float>> floats_; // One of these two.
  std::vector<Activations> halves_;
};

/// The first difference fails the test.
template <typename Found>
void check_near(const Found& found, const Doubles& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == k_anything) {
      continue;
    }
    const double bound = tolerance * (1 + std::abs(expected[i]));
    if (!(std::abs(double{found[i]} - expected[i]) <= bound)) {
      CAPTURE(i);
      CAPTURE(bound);
      CHECK(double{found[i]} == expected[i]);
      return;
    }
  }
}

} // namespace

void check(Device& device, const Operation& operation) {
  CAPTURE(operation.name);
  std::vector<Placed> placed;
  std::vector<TypedPointer> at;
  std::vector<Doubles> expected;
  for (const Array& array : operation.arrays) {
    at.push_back(placed.emplace_back(device, array).pointer());
    const Values before = placed.back().is_halves() ? rounded(array.before) : array.before;
    expected.emplace_back(before.begin(), before.end());
  }
  const bool is_halved = device.activation_type() == DType::bf16;
  const double tolerance = is_halved ? operation.of_halves : operation.tolerance;
  const Doubles found = operation.run(device, at);
  check_near(found, operation.expected(expected), tolerance);
  for (std::size_t array = 0; array < placed.size(); ++array) {
    CAPTURE(array);
    check_near(placed[array].read(), expected[array],
               placed[array].is_halves() ? tolerance : operation.tolerance);
  }
}

void check_operations(Device& device) {
  for (const auto table :
       {flat_operations, layer_operations, convolutions, text_operations, attentions}) {
    for (const Operation& operation : table()) {
      check(device, operation);
    }
  }
}

} // namespace trainer::test
