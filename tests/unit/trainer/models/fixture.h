// A model to look at, and its gradients against finite differences.
#pragma once

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/trainer/models/noting_owner.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/models/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/random.h"

namespace trainer::test {

// What models multiply a sample's loss by.
inline constexpr float k_one = 1;
inline constexpr float k_fifth = 0.2F;

/// A model and its arenas, and five images with labels below 7.
struct Fixture {
  Fixture(const CpuKernels& kernels, const ModelOptions& options)
      : device(kernels), model(make_model(options, device)),
        parameters(model->tensors().arena_size()), gradients(parameters.size()),
        owner(model->units(), {parameters.span(), gradients.span()}),
        images(labels.size() * options.height * options.width) {
    model->initialize(3, parameters.span());
    for (std::size_t i = 0; i < images.size(); ++i) {
      images.data()[i] = uniform(random_at(5, RandomStream::synthetic_data, 0, i)[0]);
    }
  }
  Batch batch() const {
    return Batch{.rows = labels.size()}
        .with(field::images, images.span())
        .with(field::labels, labels);
  }
  Score evaluate() {
    Score of_batch;
    model->evaluate(batch(), owner, &of_batch);
    return of_batch;
  }
  void train(int steps) {
    Optimizer adam({.learning_rate = 1e-2}, parameters.span(), gradients.span(), device);
    for (int i = 0; i < steps; ++i) {
      model->forward_backward(batch(), &k_fifth, false, owner, &score);
      adam.begin_step();
      adam.update(0, parameters.size());
    }
  }

  std::vector<std::int32_t> labels = {0, 3, 6, 2, 3};
  CpuDevice device;
  std::unique_ptr<Model> model;
  Buffer parameters;
  Buffer gradients;
  NotingOwner owner;
  Buffer images;
  Score score; ///< Of what trained.
};

/// Each gradient against finite differences. A ReLU that changes its side within a difference bends
/// the loss there, and a smaller one tells; rounding spoils the smallest. So one of three has to
/// agree, which no wrong gradient does.
/// `stride`: of each tensor's values, one in so many.
inline void check_gradients(const CpuKernels& kernels, const ModelOptions& options,
                            std::size_t stride = 1) {
  Fixture f(kernels, options);
  CAPTURE(f.model->describe());
  f.model->forward_backward(f.batch(), &k_one, false, f.owner, &f.score);
  const TensorTable& tensors = f.model->tensors();
  int checked = 0;
  int bent = 0;
  for (const Tensor& tensor : tensors.tensors()) {
    for (std::size_t i = 0; i < tensor.count(); i += stride) {
      const std::size_t at = tensor.offset + tensor.place_of(i);
      const float old = f.parameters.span()[at];
      const float analytic = f.gradients.span()[at];
      const auto loss_at = [&](float value) {
        f.parameters.span()[at] = value;
        return f.evaluate().loss;
      };
      std::vector<double> numeric;
      const auto agrees = [&](float step) {
        numeric.push_back((loss_at(old + step) - loss_at(old - step)) / (2.0 * step));
        loss_at(old);
        return analytic == doctest::Approx(numeric.back()).epsilon(0.02).scale(1);
      };
      if (!agrees(2e-3F)) {
        CAPTURE(tensor.name);
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

/// Whole tensors of gradients, products in bf16, against float32's.
inline void check_gradients_in_bf16(const ModelOptions& options) {
  Fixture whole(best_kernels(), options);
  Fixture half(best_kernels(), options);
  half.device.multiply_in(DType::bf16);
  for (Fixture* each : {&whole, &half}) {
    each->model->forward_backward(each->batch(), &k_one, false, each->owner, &each->score);
  }
  CHECK(half.score.loss == doctest::Approx(whole.score.loss).epsilon(0.01));
  CHECK(half.score.loss != whole.score.loss);
  for (const Tensor& tensor : whole.model->tensors().tensors()) {
    double apart = 0;
    double size = 0;
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      apart += std::pow(half.gradients.data()[i] - whole.gradients.data()[i], 2);
      size += std::pow(whole.gradients.data()[i], 2);
    }
    CAPTURE(tensor.name);
    CHECK(std::sqrt(apart / size) < 0.02);
  }
}

} // namespace trainer::test
