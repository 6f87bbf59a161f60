#include "trainer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainer {
namespace {

constexpr int k_rounds = 5;
// Coefficients of the polynomial: as steep at 0 as possible with results within 0.7 and 1.2.
constexpr float k_a = 3.4445F;
constexpr float k_b = -4.7750F;
constexpr float k_c = 2.0315F;
constexpr double k_like_adamw = 0.2;

struct Sides {
  std::size_t rows;
  std::size_t columns;

  std::size_t shorter() const { return std::min(rows, columns); }
  std::size_t longer() const { return std::max(rows, columns); }
};

/// A row-major matrix. The direction of a transpose is the transpose of the direction.
Sides sides_of(const Tensor& tensor) {
  const Sides sides = {tensor.shape[0], tensor.count() / tensor.shape[0]};
  return tensor.layout == Layout::turned ? Sides{sides.columns, sides.rows} : sides;
}

template <typename Size>
std::size_t most(const TensorTable& tensors, const Size& size) {
  std::size_t found = 0;
  for (const Tensor& tensor : tensors.tensors()) {
    found = std::max(found, is_for_muon(tensor) ? size(tensor) : 0);
  }
  return found;
}

std::size_t square_of(const Tensor& tensor) {
  return sides_of(tensor).shorter() * sides_of(tensor).shorter();
}

} // namespace

bool is_for_muon(const Tensor& tensor) { return tensor.shape.size() > 1 && !tensor.is_embedding; }

Muon::Muon(const TensorTable& tensors, Device& device)
    : device_(device),
      matrix_(device.allocate(most(tensors,
                                   [](const Tensor& tensor) {
                                     return tensor.layout == Layout::panels ? tensor.count() : 0;
                                   }),
                              DType::f32)),
      next_(device.allocate(most(tensors, [](const Tensor& tensor) { return tensor.count(); }),
                            DType::f32)),
      square_(device.allocate(most(tensors, square_of), DType::f32)),
      square_of_it_(device.allocate(square_.size(), DType::f32)),
      squares_(device.allocate(sizeof(SquareSum), DType::u8)) {}

Muon::Direction Muon::orthogonalised(const Tensor& tensor, float* u) const {
  const Sides sides = sides_of(tensor);
  const auto ratio =
      static_cast<float>(k_like_adamw * std::sqrt(static_cast<double>(sides.longer())));
  if (tensor.layout != Layout::panels) {
    return {orthogonal(sides.rows, sides.columns, u), tensor.count(), ratio};
  }
  // Only the host has panels; their padding is 0 and stays so.
  const std::span<float> in_panels(u, tensor.size);
  tensor.read(in_panels, matrix_.span().first(tensor.count()));
  const float* const found = orthogonal(sides.rows, sides.columns, matrix_.data());
  tensor.write({found, tensor.count()}, in_panels);
  return {u, tensor.size, ratio};
}

/// Orthogonalizes x (rows, columns), overwriting it; returns where the result is.
float* Muon::orthogonal(std::size_t rows, std::size_t columns, float* x) const {
  Stream& stream = device_.stream();
  const Kernels& kernels = device_.kernels();
  const std::size_t n = rows * columns;
  auto* const squares = static_cast<SquareSum*>(squares_.memory());
  kernels.squares(stream, n, x, 0, squares);
  kernels.normalise(stream, n, squares, x);
  const bool is_tall = rows > columns; // Then the product is X·A with A = Xᵀ·X.
  const std::size_t r = is_tall ? columns : rows;
  float* a = square_.data();
  float* b = square_of_it_.data();
  float* y = next_.data();
  for (int round = 0; round < k_rounds; ++round) {
    kernels.matmul(stream, {.m = r,
                            .n = r,
                            .k = n / r,
                            .a_is_turned = is_tall,
                            .b_is_turned = !is_tall,
                            .a = x,
                            .b = x,
                            .c = a});
    kernels.matmul(stream, {.m = r, .n = r, .k = r, .a = a, .b = a, .c = b});
    kernels.blend(stream, r * r, k_b, a, k_c, b);
    kernels.matmul(
        stream,
        {.m = rows, .n = columns, .k = r, .a = is_tall ? x : b, .b = is_tall ? b : x, .c = y});
    kernels.blend(stream, n, k_a, x, 1, y);
    std::swap(x, y);
  }
  return x;
}

} // namespace trainer
