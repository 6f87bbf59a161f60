#include "trainer/models/model.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cmath>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/optim/optimizer.h"
#include "trainer/random.h"

using namespace trainer;

namespace {

constexpr std::size_t k_rows = 5;
constexpr std::size_t k_inputs = 20;

/// A model of images of 4 × 5 and its arenas.
struct Fixture {
  Fixture(const CpuKernels& kernels, const std::vector<std::size_t>& hidden, std::size_t classes)
      : device(kernels), model(make_model({"mlp", 4, 5, classes, hidden}, device)),
        parameters(model->tensors().arena_size()), gradients(parameters.size()),
        images(k_rows * k_inputs) {
    model->bind(parameters.span(), gradients.span());
    model->initialize(3);
    for (std::size_t i = 0; i < images.size(); ++i) {
      images.data()[i] = uniform(random_at(5, RandomStream::synthetic_data, 0, i)[0]);
    }
  }
  explicit Fixture(const CpuKernels& kernels) : Fixture(kernels, {16}, 7) {}
  Batch batch() const { return {k_rows, images.span(), labels}; }
  void train(int steps) {
    Optimizer adam({.learning_rate = 1e-2}, parameters.span(), gradients.span(), device);
    for (int i = 0; i < steps; ++i) {
      model->forward_backward(batch(), 0.2F, false, {});
      adam.begin_step();
      adam.update(0, parameters.size());
    }
  }

  CpuDevice device;
  std::unique_ptr<Model> model;
  Buffer parameters;
  Buffer gradients;
  Buffer images;
  std::vector<std::uint8_t> labels = {0, 3, 6, 2, 3};
};

/// Each gradient against finite differences. A ReLU that changes its side within a difference bends
/// the loss there, and a smaller one tells; rounding spoils the smallest. So one of three has to
/// agree, which no wrong gradient does.
void check_gradients(const CpuKernels& kernels, const std::vector<std::size_t>& hidden,
                     std::size_t classes) {
  Fixture f(kernels, hidden, classes);
  CAPTURE(f.model->describe());
  f.model->forward_backward(f.batch(), 1, false, {});
  const TensorTable& tensors = f.model->tensors();
  int checked = 0;
  int bent = 0;
  for (std::size_t t = 0; t < tensors.tensors().size(); ++t) {
    for (std::size_t i = 0; i < tensors[t].count(); ++i) {
      const TensorRange one{t, i, i + 1, 0};
      float old = 0;
      float analytic = 0;
      tensors.read(f.parameters.span(), one, {&old, 1});
      tensors.read(f.gradients.span(), one, {&analytic, 1});
      const auto loss_at = [&](float value) {
        tensors.write({&value, 1}, one, f.parameters.span());
        return f.model->evaluate(f.batch()).loss;
      };
      std::vector<double> numeric;
      const auto agrees = [&](float step) {
        numeric.push_back((loss_at(old + step) - loss_at(old - step)) / (2.0 * step));
        loss_at(old);
        return analytic == doctest::Approx(numeric.back()).epsilon(0.02).scale(1);
      };
      if (!agrees(2e-3F)) {
        CAPTURE(tensors[t].name);
        CAPTURE(i);
        CAPTURE(analytic);
        const bool is_right = agrees(5e-4F) || agrees(1e-4F);
        INFO(fmt::format("numeric {}", fmt::join(numeric, ", ")));
        CHECK(is_right);
        ++bent;
      }
      checked += analytic != 0 ? 1 : 0;
    }
  }
  CHECK(bent * 20 < checked);
  CHECK(checked > 200);
}

} // namespace

TEST_CASE("gradients agree with finite differences, whatever the layers' widths") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    check_gradients(*kernels, {16}, 7);
    check_gradients(*kernels, {19}, 7);
    check_gradients(*kernels, {33, 18}, 7);
    check_gradients(*kernels, {12}, 37);
    check_gradients(*kernels, {}, 17);
  }
}

TEST_CASE("gradients are reported final from the arena's start to its end") {
  Fixture f(portable_kernels(), {48, 32}, 7);
  std::vector<std::size_t> reports;
  std::vector<std::size_t> needed;
  std::vector<std::size_t> done;
  f.model->forward_backward(f.batch(), 1, false,
                            {.need = [&](std::size_t unit) { needed.push_back(unit); },
                             .done = [&](std::size_t unit) { done.push_back(unit); },
                             .final = [&](std::size_t count) { reports.push_back(count); },
                             .granularity = 1});
  REQUIRE(!reports.empty());
  CHECK(std::is_sorted(reports.begin(), reports.end()));
  CHECK(reports.back() == f.model->tensors().arena_size());
  for (const Unit& unit : f.model->units()) {
    CHECK(std::find(reports.begin(), reports.end(), unit.last) != reports.end());
  }
  CHECK(needed == std::vector<std::size_t>{2, 1, 0});
  CHECK(done == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("two halves of a batch add up to the gradients of the whole") {
  Fixture f(best_kernels(), {24, 16}, 7);
  f.model->forward_backward(f.batch(), 1, false, {});
  const std::vector<float> whole(f.gradients.span().begin(), f.gradients.span().end());
  f.model->forward_backward(f.batch().slice(0, 2), 1, false, {});
  f.model->forward_backward(f.batch().slice(2, 9), 1, true, {});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(f.gradients.data()[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  }
}

TEST_CASE("what pads a layer stays zero through training") {
  Fixture f(best_kernels(), {19}, 7);
  f.train(20);
  double before = 0;
  for (const float value : f.parameters.span()) {
    before += double{value} * double{value};
  }
  double named = 0;
  for (const NamedTensor& tensor : f.model->tensors().export_arena(f.parameters.span())) {
    for (const float value : tensor.values) {
      named += double{value} * double{value};
    }
  }
  CHECK(named == doctest::Approx(before).epsilon(1e-12));
}

TEST_CASE("training lowers the loss") {
  Fixture f(best_kernels());
  const double before = f.model->evaluate(f.batch()).loss;
  f.train(100);
  const Score after = f.model->evaluate(f.batch());
  CHECK(after.loss < before / 10);
  CHECK(after.correct == 5);
}

TEST_CASE("tensors leave the arena by name and come back bit for bit") {
  Fixture f(portable_kernels());
  const TensorTable& table = f.model->tensors();
  const auto tensors = table.export_arena(f.parameters.span());
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[1].name == "output.weight");
  CHECK(tensors[1].shape == std::vector<std::size_t>{7, 16});
  Buffer copy(f.parameters.size());
  table.import_arena(tensors, copy.span());
  CHECK(std::equal(copy.span().begin(), copy.span().end(), f.parameters.span().begin()));
}

TEST_CASE("an arena's first value that is no number is found by its tensor's name") {
  Fixture f(portable_kernels());
  const TensorTable& table = f.model->tensors();
  CHECK(table.first_not_finite(f.parameters.span()).empty());
  f.parameters.data()[table[3].offset + 5] = INFINITY;
  CHECK(table.first_not_finite(f.parameters.span()) == "hidden.weight");
  CHECK(table.suspect(f.parameters.span()) == "hidden.weight, which holds inf");
}
