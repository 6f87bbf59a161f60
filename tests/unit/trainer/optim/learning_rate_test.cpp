#include "trainer/optim/learning_rate.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/unit/trainer/optim/deepspeed_vectors.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

using Schedule = LearningRate::Schedule;

TEST_CASE("a constant learning rate stays, also without an end") {
  CHECK(LearningRate{0.5, Schedule::constant, 10}.at(10) == 0.5);
  CHECK(LearningRate{0.5, Schedule::linear, 0}.at(1e9) == 0.5);
}

TEST_CASE("linear and cosine come down from the peak to nothing, and no further") {
  for (const Schedule schedule : {Schedule::linear, Schedule::cosine}) {
    const LearningRate rate{0.5, schedule, 10};
    CHECK(rate.at(0) == doctest::Approx(0.5));
    CHECK(rate.at(5) == doctest::Approx(0.25));
    CHECK(rate.at(10) == doctest::Approx(0));
    CHECK(rate.at(11) == rate.at(10));
    for (double done = 0; done < 10; ++done) {
      CHECK(rate.at(done + 1) < rate.at(done));
    }
  }
}

TEST_CASE("cosine is above linear at first and below it at the end") {
  const LearningRate linear{1, Schedule::linear, 100};
  const LearningRate cosine{1, Schedule::cosine, 100};
  CHECK(cosine.at(10) > linear.at(10));
  CHECK(cosine.at(90) < linear.at(90));
}

TEST_CASE("the schedules have the values of PyTorch's LinearLR and CosineAnnealingLR") {
  constexpr double k_near = 1e-12; // Approx allows 1e-5 of 1 without.
  const LearningRate linear{0.5, Schedule::linear, 10};
  const LearningRate cosine{0.5, Schedule::cosine, 10};
  CHECK(std::abs(linear.at(2.5) - 0.375) < k_near);
  CHECK(std::abs(linear.at(10)) < k_near);
  CHECK(std::abs(cosine.at(0) - 0.5) < k_near);
  CHECK(std::abs(cosine.at(2.5) - 0.42677669529663687) < k_near);
  CHECK(std::abs(cosine.at(7.5) - 0.07322330470336313) < k_near);
}

TEST_CASE("DeepSpeed's schedules have DeepSpeed's values") {
  for (const DeepSpeedRates& vector : deepspeed_rates()) {
    const LearningRate& rate = vector.rate;
    const std::vector<double>& expected = vector.expected;
    CAPTURE(rate.text());
    LearningRate in_samples = rate;
    in_samples.update = 96;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(std::abs(rate.at(static_cast<double>(i)) - expected[i]) < 1e-15);
      CHECK(in_samples.at(static_cast<double>(96 * i)) == rate.at(static_cast<double>(i)));
    }
  }
}

TEST_CASE("schedules are known by name") {
  for (const std::string& name : schedule_names()) {
    CHECK(schedule_name(parse_schedule(name)) == name);
  }
  CHECK_THROWS_AS(parse_schedule("Cosine"), UsageError);
}

} // namespace
} // namespace trainer
