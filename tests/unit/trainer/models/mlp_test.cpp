#include "trainer/models/mlp.h"

#include <doctest/doctest.h>

#include <cmath>

#include "trainer/optim/adam.h"
#include "trainer/random.h"

using namespace trainer;

namespace {

constexpr MlpShape k_shape{20, 16, 7};
constexpr std::size_t k_rows = 5;

struct Fixture {
  explicit Fixture(const CpuKernels& kernels)
      : model(k_shape, kernels), parameters(model.parameter_count()),
        gradients(model.parameter_count()), images(k_rows * k_shape.inputs) {
    model.bind(parameters.span(), gradients.span());
    model.initialize(3);
    for (std::size_t i = 0; i < images.size(); ++i) {
      images.data()[i] = uniform(random_at(5, RandomStream::synthetic_data, 0, i)[0]);
    }
  }
  Batch batch() const { return {k_rows, images.span(), labels}; }

  Mlp model;
  Buffer parameters;
  Buffer gradients;
  Buffer images;
  std::vector<std::uint8_t> labels = {0, 3, 6, 2, 3};
};

} // namespace

TEST_CASE("gradients agree with finite differences") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    Fixture f(*kernels);
    f.model.forward_backward(f.batch(), 1, 1, [](std::size_t) {});
    const std::vector<float> analytic(f.gradients.span().begin(), f.gradients.span().end());
    constexpr float step = 2e-3F; // small, so that no activation changes sign
    int checked = 0;
    for (std::size_t i = 0; i < f.parameters.size(); ++i) {
      float& parameter = f.parameters.data()[i];
      const float old = parameter;
      parameter = old + step;
      const double above = f.model.evaluate(f.batch()).loss;
      parameter = old - step;
      const double below = f.model.evaluate(f.batch()).loss;
      parameter = old;
      const double numeric = (above - below) / (2.0 * step);
      CHECK(analytic[i] == doctest::Approx(numeric).epsilon(0.02).scale(1));
      checked += analytic[i] != 0 ? 1 : 0;
    }
    CHECK(checked > 300);
  }
}

TEST_CASE("gradients are reported ready from the arena's start to its end") {
  Fixture f(portable_kernels());
  std::vector<std::size_t> reports;
  f.model.forward_backward(f.batch(), 1, 1, [&](std::size_t count) { reports.push_back(count); });
  REQUIRE(!reports.empty());
  CHECK(std::is_sorted(reports.begin(), reports.end()));
  CHECK(reports.back() == f.model.parameter_count());
}

TEST_CASE("the columns that pad a layer stay zero through training") {
  Fixture f(best_kernels());
  AdamOptimizer adam(f.parameters.span(), f.gradients.span(), 1e-2, best_kernels());
  for (int i = 0; i < 20; ++i) {
    f.model.forward_backward(f.batch(), 0.2F, 1000, [](std::size_t) {});
    adam.begin_step();
    adam.update(0, f.parameters.size());
  }
  for (std::size_t row = 0; row <= k_shape.hidden; ++row) { // the bias, then the weight's rows
    for (std::size_t column = k_shape.classes; column < k_panel; ++column) {
      CHECK(f.parameters.data()[row * k_panel + column] == 0.0F);
    }
  }
}

TEST_CASE("training lowers the loss") {
  Fixture f(best_kernels());
  AdamOptimizer adam(f.parameters.span(), f.gradients.span(), 1e-2, best_kernels());
  const double before = f.model.evaluate(f.batch()).loss;
  for (int i = 0; i < 100; ++i) {
    f.model.forward_backward(f.batch(), 0.2F, 1000, [](std::size_t) {});
    adam.begin_step();
    adam.update(0, f.parameters.size());
  }
  const Score after = f.model.evaluate(f.batch());
  CHECK(after.loss < before / 10);
  CHECK(after.correct == 5);
}

TEST_CASE("tensors leave the arena by name and come back bit for bit") {
  Fixture f(portable_kernels());
  const auto tensors = f.model.export_arena(f.parameters.span());
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[1].name == "output.weight");
  CHECK(tensors[1].shape == std::vector<std::size_t>{7, 16});
  Buffer copy(f.parameters.size());
  f.model.import_arena(tensors, copy.span());
  CHECK(std::equal(copy.span().begin(), copy.span().end(), f.parameters.span().begin()));
}

TEST_CASE("the first Adam step moves every parameter by the learning rate") {
  Buffer parameters(16);
  Buffer gradients(16);
  std::fill_n(gradients.data(), 16, -0.5F);
  AdamOptimizer adam(parameters.span(), gradients.span(), 0.01, best_kernels());
  adam.begin_step();
  adam.update(0, 16);
  for (const float value : parameters.span()) {
    CHECK(value == doctest::Approx(0.01));
  }
}
