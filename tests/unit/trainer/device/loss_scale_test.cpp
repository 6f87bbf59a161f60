#include "trainer/device/loss_scale.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace trainer;

namespace {

/// The scale behind each step; 'x' is one that overflows.
std::vector<double> scales(const LossScaleOptions& options, const std::string& steps) {
  std::vector<double> all;
  LossScale now = first_loss_scale(options);
  for (const char step : steps) {
    all.push_back(next_loss_scale(options, now, step == 'x') ? now.scale : -1);
  }
  return all;
}

using Scales = std::vector<double>;

} // namespace

TEST_CASE("a loss scale doubles where a window of steps was clean, the first one a step early") {
  const LossScaleOptions options{.fixed = 0, .initial_power = 3, .window = 3};
  CHECK(scales(options, ".......") == Scales{8, 8, 16, 16, 16, 32, 32});
}

TEST_CASE("overflows use the hysteresis up before they halve the scale, each from then on") {
  const LossScaleOptions options{.fixed = 0, .initial_power = 6, .window = 4, .hysteresis = 3};
  CHECK(scales(options, "xxxx") == Scales{64, 64, 32, 16});
  // What is left of it comes back with a clean window, or with each clean step where so asked.
  CHECK(scales(options, "xx.xx.") == Scales{64, 64, 64, 32, 16, 16});
  CHECK(scales(options, "xx....x") == Scales{64, 64, 64, 64, 64, 128, 128});
  LossScaleOptions consecutive = options;
  consecutive.is_consecutive = 1;
  CHECK(scales(consecutive, "xx.xxx") == Scales{64, 64, 64, 64, 64, 32});
}

TEST_CASE("the scale ends at its least, and there is none after an overflow there") {
  LossScaleOptions options{.fixed = 0, .initial_power = 2, .hysteresis = 1, .least = 3};
  CHECK(scales(options, "x") == Scales{3});
  CHECK(scales(options, "xx") == Scales{3, -1});
}

TEST_CASE("a fixed scale is left alone") {
  CHECK(scales({.fixed = 100}, ".x.x") == Scales{100, 100, 100, 100});
}
