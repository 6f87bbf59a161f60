#include "tests/unit/trainer/models/fixture.h"

#include <algorithm>

#include "tests/unit/trainer/largest_difference.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr float k_28 = 28;

ModelOptions cnn(std::size_t height, std::size_t width, std::size_t classes = 7) {
  return {"cnn", height, width, classes, {16}};
}

/// (channels, height, width), by plain loops.
struct Picture {
  std::size_t channels;
  std::size_t height;
  std::size_t width;
  std::vector<double> values;

  double at(std::size_t c, std::ptrdiff_t y, std::ptrdiff_t x) const {
    if (y < 0 || x < 0 || y >= static_cast<std::ptrdiff_t>(height) ||
        x >= static_cast<std::ptrdiff_t>(width)) {
      return 0;
    }
    return values[(c * height + static_cast<std::size_t>(y)) * width + static_cast<std::size_t>(x)];
  }
};

Picture convolved_and_pooled(const Picture& from, const NamedTensor& weight,
                             const NamedTensor& bias) {
  const std::size_t outputs = bias.values.size();
  Picture full{outputs, from.height, from.width, {}};
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t y = 0; y < from.height; ++y) {
      for (std::size_t x = 0; x < from.width; ++x) {
        double sum = bias.values[o];
        for (std::size_t tap = 0; tap < 9; ++tap) {
          for (std::size_t c = 0; c < from.channels; ++c) {
            sum += weight.values[(o * 9 + tap) * from.channels + c] *
                   from.at(c, static_cast<std::ptrdiff_t>(y + tap / 3) - 1,
                           static_cast<std::ptrdiff_t>(x + tap % 3) - 1);
          }
        }
        full.values.push_back(std::max(0.0, sum));
      }
    }
  }
  Picture pooled{outputs, from.height / 2, from.width / 2, {}};
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t y = 0; y < pooled.height; ++y) {
      for (std::size_t x = 0; x < pooled.width; ++x) {
        const auto at = [&](std::size_t dy, std::size_t dx) {
          return full.values[(o * full.height + 2 * y + dy) * full.width + 2 * x + dx];
        };
        pooled.values.push_back(std::max({at(0, 0), at(0, 1), at(1, 0), at(1, 1)}));
      }
    }
  }
  return pooled;
}

std::vector<double> connected(const std::vector<double>& from, const NamedTensor& weight,
                              const NamedTensor& bias) {
  std::vector<double> to;
  for (std::size_t o = 0; o < bias.values.size(); ++o) {
    double sum = bias.values[o];
    for (std::size_t i = 0; i < from.size(); ++i) {
      sum += weight.values[o * from.size() + i] * from[i];
    }
    to.push_back(sum);
  }
  return to;
}

/// The loss of an image, from the tensors as a checkpoint has them.
double loss_by_plain_loops(const Fixture& f, const ModelOptions& options, std::size_t row) {
  const auto tensors = f.model->tensors().export_arena(f.parameters.span());
  const auto find = [&](const char* name) -> const NamedTensor& {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const NamedTensor& t) { return t.name == name; });
  };
  const std::size_t features = options.height * options.width;
  const float* image = f.images.data() + row * features;
  const Picture first{1, options.height, options.width, {image, image + features}};
  const Picture second = convolved_and_pooled(first, find("conv1.weight"), find("conv1.bias"));
  const Picture third = convolved_and_pooled(second, find("conv2.weight"), find("conv2.bias"));
  std::vector<double> flat; // Channels last.
  for (std::size_t pixel = 0; pixel < third.height * third.width; ++pixel) {
    for (std::size_t c = 0; c < third.channels; ++c) {
      flat.push_back(third.values[c * third.height * third.width + pixel]);
    }
  }
  std::vector<double> hidden = connected(flat, find("hidden.weight"), find("hidden.bias"));
  std::transform(hidden.begin(), hidden.end(), hidden.begin(),
                 [](double value) { return std::max(0.0, value); });
  const auto logits = connected(hidden, find("output.weight"), find("output.bias"));
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit);
  }
  return std::log(sum) - logits[static_cast<std::size_t>(f.labels[row])];
}

} // namespace

TEST_CASE("a CNN's loss is that of plain loops over its tensors, whatever the images' sides") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    for (const auto& options : {cnn(8, 8), cnn(7, 10), cnn(4, 5)}) {
      Fixture f(*kernels, options);
      f.train(3); // So that no bias is 0.
      double expected = 0;
      for (std::size_t row = 0; row < f.labels.size(); ++row) {
        expected += loss_by_plain_loops(f, options, row);
      }
      CAPTURE(f.model->describe());
      CHECK(f.evaluate().loss == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("a CNN's gradients agree with finite differences") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    check_gradients(*kernels, cnn(8, 8), 71);
    check_gradients(*kernels, cnn(7, 10), 71);
  }
}

TEST_CASE("a CNN's gradients in bf16 are near those of float32") {
  check_gradients_in_bf16(cnn(8, 8));
}

TEST_CASE("a CNN's gradients add up over passes and slices of any size") {
  const ModelOptions options = cnn(8, 9);
  Fixture f(best_kernels(), options);
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  for (int copy = 0; copy < 28; ++copy) { // 140 rows: two slices and a rest.
    images.insert(images.end(), f.images.span().begin(), f.images.span().end());
    labels.insert(labels.end(), f.labels.begin(), f.labels.end());
  }
  f.model->forward_backward(f.batch(), &k_28, false, f.owner, &f.score);
  const std::vector<float> once(f.gradients.span().begin(), f.gradients.span().end());
  const Batch all =
      Batch{.rows = labels.size()}.with(field::images, images).with(field::labels, labels);
  f.owner.told.clear();
  f.owner.wanted_granularity = 1;
  f.model->forward_backward(all, &k_one, false, f.owner, &f.score);
  const std::vector<std::size_t> reports = f.owner.all("final");
  const auto check = [&] { CHECK(largest_difference(f.gradients.span(), once) < 4e-3); };
  check();
  CHECK(std::is_sorted(reports.begin(), reports.end()));
  for (const ArenaRange& unit : f.model->units()) {
    CHECK(std::find(reports.begin(), reports.end(), unit.last) != reports.end());
  }
  f.model->forward_backward(all.slice(0, 4), &k_one, false, f.owner, &f.score);
  f.model->forward_backward(all.slice(4, 1000), &k_one, true, f.owner, &f.score);
  check();
}

TEST_CASE("a CNN learns, and images too small for it are refused") {
  Fixture f(best_kernels(), cnn(8, 8));
  const double before = f.evaluate().loss;
  f.train(60);
  CHECK(f.evaluate().loss < before / 10);
  CpuDevice device;
  CHECK_THROWS_AS(make_model(cnn(3, 28), device), UsageError);
}
