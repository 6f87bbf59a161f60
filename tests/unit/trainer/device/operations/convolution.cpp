// A convolution with its pool, and its gradients.
#include <fmt/format.h>

#include "tests/unit/trainer/device/operations/oracles.h"

namespace trainer::test {
namespace {

using Pointers = std::vector<TypedPointer>;

Doubles doubles(const Values& values) { return {values.begin(), values.end()}; }

/// What the operations of a shape work on.
struct Inputs {
  explicit Inputs(const ConvolutionShape& s)
      : shape(s), x(numbers(s.images * s.height * s.width * s.channels, 1)),
        weight(numbers(s.outputs * 9 * s.channels, 2)), bias(numbers(s.outputs, 3)),
        dy(numbers(s.images * s.pools() * s.outputs, 4)) {}

  Convolved convolved() const {
    return convolve(shape, doubles(x), doubles(weight), doubles(bias));
  }
  std::string text(const char* what) const {
    return fmt::format("{} of {} images of {} × {} × {} → {}", what, shape.images, shape.height,
                       shape.width, shape.channels, shape.outputs);
  }

  ConvolutionShape shape;
  Values x, weight, bias, dy;
};

/// Also says which were chosen, where the sums say it plainly.
Operation forward(const Inputs& in) {
  const ConvolutionShape s = in.shape;
  return {.name = in.text("convolution"),
          .arrays = {{.before = in.x},
                     {.before = in.weight},
                     {.before = in.bias},
                     to_write(in.dy.size())},
          .run =
              [s](Device& device, const Pointers& at) {
                On<std::uint8_t> chosen(
                    device, std::vector<std::uint8_t>(s.images * s.pools() * s.outputs, 77));
                device.kernels().layers->convolution(device.stream(), s, at[0].as<float>(),
                                                     at[1].as<float>(), at[2].as<float>(),
                                                     at[3].as<float>(), chosen.data());
                const std::vector<std::uint8_t> found = chosen.read();
                return Doubles(found.begin(), found.end());
              },
          .expected =
              [s](std::vector<Doubles>& at) {
                const Convolved found = convolve(s, at[0], at[1], at[2]);
                at[3] = found.y;
                Doubles chosen;
                for (std::size_t i = 0; i < found.chosen.size(); ++i) {
                  constexpr double k_plain = 1e-4;
                  chosen.push_back(found.margins[i] > k_plain ? found.chosen[i] : k_anything);
                }
                return chosen;
              },
          .tolerance = 2e-5};
}

Operation backward_weight(const Inputs& in, bool accumulate) {
  const ConvolutionShape s = in.shape;
  const std::vector<std::uint8_t> chosen = in.convolved().chosen;
  const float before = accumulate ? 0.25F : NAN;
  return {.name = in.text(accumulate ? "convolution_backward_weight, added,"
                                     : "convolution_backward_weight"),
          .arrays = {{.before = in.x},
                     {.before = in.dy},
                     {.before = Values(in.weight.size(), before)},
                     {.before = Values(s.outputs, before)}},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::uint8_t> which(device, chosen);
                On<float> room(device, Values(s.room(), NAN));
                device.kernels().layers->convolution_backward_weight(
                    device.stream(), s, at[0].as<float>(), at[1].as<float>(), which.data(),
                    accumulate, room.data(), at[2].as<float>(), at[3].as<float>());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                const DenseGradients found =
                    convolution_gradients(s, at[0], Doubles(at[2].size()), at[1], chosen);
                const double start = accumulate ? double{before} : 0;
                for (std::size_t i = 0; i < found.dweight.size(); ++i) {
                  at[2][i] = start + found.dweight[i];
                }
                for (std::size_t i = 0; i < found.dbias.size(); ++i) {
                  at[3][i] = start + found.dbias[i];
                }
                return Doubles{};
              },
          .tolerance = 4e-5};
}

Operation backward_input(const Inputs& in) {
  const ConvolutionShape s = in.shape;
  const std::vector<std::uint8_t> chosen = in.convolved().chosen;
  return {.name = in.text("convolution_backward_input"),
          .arrays = {{.before = in.dy}, {.before = in.weight}, to_write(in.x.size())},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::uint8_t> which(device, chosen);
                device.kernels().layers->convolution_backward_input(
                    device.stream(), s, at[0].as<float>(), which.data(), at[1].as<float>(),
                    at[2].as<float>());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                at[2] = convolution_gradients(s, Doubles(at[2].size()), at[1], at[0], chosen).dx;
                return Doubles{};
              },
          .tolerance = 2e-5};
}

} // namespace

std::vector<Operation> convolutions() {
  std::vector<Operation> all;
  // Odd sides, of which a row or column is in no pool; sums of more than one part; channels and
  // outputs by fours, or one by one; more and fewer than a tile has.
  for (const ConvolutionShape& s :
       {ConvolutionShape{1, 2, 2, 1, 1}, ConvolutionShape{2, 5, 7, 3, 17},
        ConvolutionShape{3, 4, 6, 16, 70}, ConvolutionShape{2, 5, 4, 37, 6},
        ConvolutionShape{7, 28, 28, 1, 32}, ConvolutionShape{3, 7, 9, 8, 36},
        ConvolutionShape{5, 14, 14, 32, 64}, ConvolutionShape{1, 5, 3, 68, 100}}) {
    const Inputs in(s);
    all.push_back(forward(in));
    all.push_back(backward_weight(in, false));
    all.push_back(backward_weight(in, true));
    all.push_back(backward_input(in));
  }
  return all;
}

} // namespace trainer::test
