// What ends a classifier, and the gradients of small layers.
#include <algorithm>

#include <fmt/format.h>

#include "tests/unit/trainer/device/operations/oracles.h"

namespace trainer::test {
namespace {

using Pointers = std::vector<TypedPointer>;

const Score k_score{1, 2, 3}; ///< What is there before.
constexpr float k_scale = 0.5F;

Doubles values_of(const Score& score) {
  return {score.loss, static_cast<double>(score.correct), static_cast<double>(score.count)};
}

Ids labels_of(std::size_t rows, std::size_t classes) {
  Ids labels;
  for (std::size_t row = 0; row < rows; ++row) {
    labels.push_back(static_cast<std::int32_t>((row * 7 + classes / 2) % classes));
  }
  return labels;
}

/// Logits (rows, classes) become their gradient. Returns the score; of equal logits the first
/// counts.
Doubles score_rows(std::size_t rows, std::size_t classes, const Ids& labels, Doubles& logits) {
  Score score = k_score;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * classes);
    const auto end = begin + static_cast<std::ptrdiff_t>(classes);
    const CrossEntropy one = cross_entropy({begin, end}, static_cast<std::size_t>(labels[row]));
    score += {one.loss, std::max_element(begin, end) - begin == labels[row] ? 1 : 0, 1};
    std::transform(one.change.begin(), one.change.end(), begin,
                   [](double change) { return change * double{k_scale}; });
  }
  return values_of(score);
}

Operation softmax_cross_entropy(std::size_t rows, std::size_t classes) {
  Values logits = numbers(rows * classes, 5);
  if (classes > 2) {
    logits[1] = logits[2] = 7;
  }
  Ids labels = labels_of(rows, classes);
  labels[0] = classes > 1 ? 1 : 0;
  return {.name = fmt::format("softmax_cross_entropy of {} × {}", rows, classes),
          .arrays = {{.before = logits}},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> which(device, labels);
                On<Score> score(device, {k_score});
                On<float> scale(device, {k_scale});
                device.kernels().layers->softmax_cross_entropy(
                    device.stream(), rows, classes, at[0].as<float>(), which.data(), scale.data(),
                    at[0].as<float>(), score.data());
                return values_of(score.read()[0]);
              },
          .expected =
              [=](std::vector<Doubles>& at) { return score_rows(rows, classes, labels, at[0]); }};
}

Operation score(const DenseShape& shape, bool is_trained) {
  const Ids labels = labels_of(shape.rows, shape.outputs);
  return {.name = fmt::format("score of {} × {} → {}{}", shape.rows, shape.inputs, shape.outputs,
                              is_trained ? ", trained" : ""),
          .arrays = {{.before = numbers(shape.rows * shape.inputs, 1)}, // Half of them below 0.
                     {.before = numbers(shape.outputs * shape.inputs, 2)},
                     {.before = numbers(shape.outputs, 3)},
                     to_write(shape.rows * shape.outputs),
                     to_write(shape.rows * shape.inputs)},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> which(device, labels);
                On<Score> to(device, {k_score});
                On<float> scale(device, {k_scale});
                device.kernels().layers->score(
                    device.stream(), shape, at[0].as<float>(), at[1].as<float>(), at[2].as<float>(),
                    which.data(), is_trained ? scale.data() : nullptr, at[3].as<float>(),
                    is_trained ? at[4].as<float>() : nullptr, to.data());
                return values_of(to.read()[0]);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                at[3] = dense(shape, at[0], at[1], at[2]);
                const Doubles to = score_rows(shape.rows, shape.outputs, labels, at[3]);
                at[4] = dense_gradients(shape, at[0], at[1], at[3]).dx;
                for (std::size_t i = 0; i < at[4].size(); ++i) {
                  at[4][i] = !is_trained ? k_anything : at[0][i] > 0 ? at[4][i] : 0;
                }
                if (!is_trained) {
                  at[3].assign(at[3].size(), k_anything);
                }
                return to;
              },
          .tolerance = 2e-5};
}

/// Of several layers at once.
Operation weight_gradients(const std::vector<DenseShape>& shapes, bool accumulate) {
  constexpr std::size_t k_arrays = 4; // Of a layer: x, dy, dweight and dbias.
  const float before = accumulate ? 0.25F : NAN;
  Operation made{.name = fmt::format("weight_gradients{}", accumulate ? ", added" : ""),
                 .tolerance = 2e-5};
  for (const DenseShape& shape : shapes) {
    made.arrays.push_back({.before = numbers(shape.rows * shape.inputs, 1)});
    made.arrays.push_back({.before = numbers(shape.rows * shape.outputs, 2)});
    made.arrays.push_back({.before = Values(shape.outputs * shape.inputs, before)});
    made.arrays.push_back({.before = Values(shape.outputs, before)});
  }
  made.run = [=](Device& device, const Pointers& at) {
    std::vector<Matmul> products;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto array = [&](std::size_t which) { return at[k_arrays * i + which].as<float>(); };
      products.push_back(shapes[i].backward_weight(ConstTypedPointer(array(0)),
                                                   ConstTypedPointer(array(1)), accumulate,
                                                   array(2), array(3)));
    }
    device.kernels().layers->weight_gradients(device.stream(), products.size(), products.data());
    return finished(device);
  };
  made.expected = [=](std::vector<Doubles>& at) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      Doubles* const array = at.data() + k_arrays * i;
      const DenseGradients found =
          dense_gradients(shapes[i], array[0], Doubles(array[2].size()), array[1]);
      const auto give = [&](const Doubles& from, Doubles& to) {
        for (std::size_t value = 0; value < to.size(); ++value) {
          to[value] = (accumulate ? to[value] : 0) + from[value];
        }
      };
      give(found.dweight, array[2]);
      give(found.dbias, array[3]);
    }
    return Doubles{};
  };
  return made;
}

} // namespace

std::vector<Operation> layer_operations() {
  std::vector<Operation> all;
  for (const std::size_t classes : {1, 2, 10, 33, 256, 1000}) {
    for (const std::size_t rows : {1, 7, 64, 300}) {
      all.push_back(softmax_cross_entropy(rows, classes));
    }
  }
  for (const bool is_trained : {false, true}) {
    for (const std::size_t classes : {1, 10, 32}) {
      all.push_back(score({1, 19, classes}, is_trained));
      all.push_back(score({64, 128, classes}, is_trained));
      all.push_back(score({200, 19, classes}, is_trained));
    }
    // Tiles that end within and without, and more layers than a GPU's launch takes.
    all.push_back(weight_gradients(
        {{64, 128, 10}, {100, 33, 65}, {1, 1, 1}, {5, 64, 32}, {128, 40, 7}, {64, 784, 3}},
        is_trained));
  }
  return all;
}

} // namespace trainer::test
