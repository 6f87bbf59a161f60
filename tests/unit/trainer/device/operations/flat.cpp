// Optimizers, norms and conversions: operations on flat ranges.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "tests/unit/trainer/device/operations/operation.h"

namespace trainer::test {
namespace {

using Pointers = std::vector<TypedPointer>;

constexpr double k_rounding = 2e-6;

Values squares_of(Values values) {
  for (float& value : values) {
    value *= value;
  }
  return values;
}

/// Of the arrays of an optimizer: the gradient, two moments, the parameters, and room.
enum Part : std::size_t { gradient, first, second, parameters, room };

const UpdateRule k_rule{.epsilon = 1e-4F, .l2 = 0.1F, .decay = 0.5};

struct Step {
  double factor;
  double rate = 0.02;
  double size = double{0.01F};
  double correction = 2;

  StepState state() const {
    return {.learning_rate = rate,
            .step_size = static_cast<float>(size),
            .inverse_correction2 = static_cast<float>(correction),
            .factor = static_cast<float>(factor)};
  }
};

/// Of one value; `p`, `m` and `v` are changed.
using Update = void (*)(const Step& step, double g, double& p, double& m, double& v);

double blended(float beta, double moment, double value) {
  return double{beta} * moment + (1 - double{beta}) * value;
}

void sgd(const Step& step, double g, double& p, double& m, double& /*v*/) {
  m = double{k_rule.beta1} * m + g + double{k_rule.l2} * p;
  p -= step.size * m;
}

void adam(const Step& step, double g, double& p, double& m, double& v) {
  g += double{k_rule.l2} * p;
  p *= 1 - step.rate * k_rule.decay;
  m = blended(k_rule.beta1, m, g);
  v = blended(k_rule.beta2, v, g * g);
  p -= step.size * m / (std::sqrt(v) * step.correction + double{k_rule.epsilon});
}

double norm_of(const Doubles& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

void lamb_direction(const Step& step, std::vector<Doubles>& at) {
  for (std::size_t i = 0; i < at[parameters].size(); ++i) {
    const double g = at[gradient][i] * step.factor;
    double& m = at[first][i];
    double& v = at[second][i];
    m = blended(k_rule.beta1, m, g);
    v = blended(k_rule.beta2, v, g * g);
    at[room][i] = step.size * m / (std::sqrt(v) * step.correction + double{k_rule.epsilon}) +
                  k_rule.decay * at[parameters][i];
  }
}

void lamb_take(const Step& step, std::vector<Doubles>& at) {
  const double of_parameters = norm_of(at[parameters]);
  const double of_direction = norm_of(at[second]);
  const double ratio = of_parameters > 0 && of_direction > 0 ? of_parameters / of_direction : 1.0;
  for (std::size_t i = 0; i < at[parameters].size(); ++i) {
    at[parameters][i] -= step.rate * ratio * at[second][i];
  }
}

class Optimizers {
 public:
  Optimizers(std::size_t n, std::size_t begin, double factor, bool of_zeros = false)
      : n_(n), begin_(begin), step_{factor}, of_zeros_(of_zeros) {}

  std::vector<Operation> all() const {
    return {one("sgd", each(sgd),
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.sgd(s, n, k_rule, state, at[gradient], at[first], at[parameters]);
                }),
            one("adam", each(adam),
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.adam(s, n, k_rule, state, at[gradient], at[first], at[second], at[parameters]);
                }),
            one("lamb_direction", lamb_direction,
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.lamb_direction(s, n, k_rule, state, at[gradient], at[first], at[second],
                                   at[room], at[parameters]);
                }),
            one("lamb_take", lamb_take,
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.lamb_take(s, n, state, at[second], at[parameters]);
                }),
            one("muon_direction", muon_direction,
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.muon_direction(s, n, k_rule, state, at[gradient], at[first], at[room]);
                }),
            one("muon_take", muon_take,
                [n = n_](const Kernels& k, Stream& s, const StepState* state, const auto& at) {
                  k.muon_take(s, n, k_rule, state, 0.5F, at[second], at[parameters]);
                })};
  }

 private:
  static std::function<void(const Step&, std::vector<Doubles>&)> each(Update update) {
    return [update](const Step& step, std::vector<Doubles>& at) {
      for (std::size_t i = 0; i < at[gradient].size(); ++i) {
        update(step, at[gradient][i] * step.factor, at[parameters][i], at[first][i], at[second][i]);
      }
    };
  }
  static void muon_direction(const Step& step, std::vector<Doubles>& at) {
    for (std::size_t i = 0; i < at[gradient].size(); ++i) {
      const double g = at[gradient][i] * step.factor;
      at[first][i] = blended(k_rule.beta1, at[first][i], g);
      at[room][i] = blended(k_rule.beta1, at[first][i], g);
    }
  }
  static void muon_take(const Step& step, std::vector<Doubles>& at) {
    for (std::size_t i = 0; i < at[parameters].size(); ++i) {
      double& p = at[parameters][i];
      p = (1 - step.rate * k_rule.decay) * p - step.rate * 0.5 * at[second][i];
    }
  }

  using Floats = std::vector<float*>;
  using Put = std::function<void(const Kernels&, Stream&, const StepState*, const Floats&)>;

  Operation one(const char* name, std::function<void(const Step&, std::vector<Doubles>&)> expected,
                Put put) const {
    Operation made{.name = fmt::format("{} of {}, {} from the start, factor {}{}", name, n_, begin_,
                                       step_.factor, of_zeros_ ? ", parameters of zeros" : ""),
                   .tolerance = k_rounding};
    for (const Values& values : {numbers(n_, 1), numbers(n_, 2), squares_of(numbers(n_, 3)),
                                 of_zeros_ ? Values(n_) : numbers(n_, 4), Values(n_, 0.5F)}) {
      made.arrays.push_back({.before = values, .begin = begin_});
    }
    made.run = [step = step_, put = std::move(put)](Device& device, const Pointers& at) {
      On<StepState> state(device, {step.state()});
      Floats floats;
      for (const TypedPointer& array : at) {
        floats.push_back(array.as<float>());
      }
      put(device.kernels(), device.stream(), state.data(), floats);
      return finished(device);
    };
    made.expected = [step = step_, expected = std::move(expected)](std::vector<Doubles>& at) {
      expected(step, at);
      return Doubles{};
    };
    return made;
  }

  std::size_t n_;
  std::size_t begin_;
  Step step_;
  bool of_zeros_;
};

Operation normalise(std::size_t n, std::size_t begin, double squares) {
  return {.name = fmt::format("normalise {} by √{}, {} from the start", n, squares, begin),
          .arrays = {{.before = numbers(n, 1), .begin = begin}},
          .run =
              [n, squares](Device& device, const Pointers& at) {
                On<SquareSum> sum(device, {{squares}});
                device.kernels().normalise(device.stream(), n, sum.data(), at[0].as<float>());
                return finished(device);
              },
          .expected =
              [squares](std::vector<Doubles>& at) {
                for (double& value : at[0]) {
                  value /= std::max(std::sqrt(squares), 1e-7);
                }
                return Doubles{};
              },
          .tolerance = k_rounding};
}

Operation blend(std::size_t n, std::size_t begin) {
  return {.name = fmt::format("blend {}, {} from the start", n, begin),
          .arrays = {{.before = numbers(n, 1), .begin = begin},
                     {.before = numbers(n, 2), .begin = begin}},
          .run =
              [n](Device& device, const Pointers& at) {
                device.kernels().blend(device.stream(), n, 0.5F, at[0].as<float>(), 0.25F,
                                       at[1].as<float>());
                return finished(device);
              },
          .expected =
              [](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[0].size(); ++i) {
                  at[1][i] = 0.5 * at[0][i] + 0.25 * at[1][i];
                }
                return Doubles{};
              },
          .tolerance = k_rounding};
}

/// The sum, and the place of the first value that is not finite; -1: all are.
Doubles doubles(const SquareSum& sum) {
  return {sum.sum, std::isinf(sum.not_finite) ? -1 : sum.not_finite};
}

/// `wrong`: which values are not finite.
Operation squares(std::size_t n, std::size_t begin, const std::vector<std::size_t>& wrong = {}) {
  constexpr std::size_t k_place = 1'000'000'007;
  Values values = numbers(n, 1);
  for (const std::size_t at : wrong) {
    values[at] = at % 2 == 0 ? NAN : -INFINITY;
  }
  return {.name = fmt::format("squares of {}, {} from the start, {} of them not finite", n, begin,
                              wrong.size()),
          .arrays = {{.before = values, .begin = begin}},
          .run =
              [=](Device& device, const Pointers& at) {
                On<SquareSum> sum(device, {{}});
                device.kernels().squares(device.stream(), n, at[0].as<float>(), k_place,
                                         sum.data());
                return doubles(sum.read()[0]);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                if (wrong.empty()) {
                  return Doubles{norm_of(at[0]) * norm_of(at[0]), -1};
                }
                const std::size_t first = *std::min_element(wrong.begin(), wrong.end());
                at[0].assign(n, k_anything); // Their arrays are none to compare.
                return Doubles{k_anything, static_cast<double>(k_place + first)};
              },
          .tolerance = 1e-9};
}

Operation sum(std::size_t n, std::size_t stride) {
  std::vector<SquareSum> parts;
  for (const float value : numbers(std::max<std::size_t>(n * stride, 1), 5)) {
    parts.push_back({value, 10.0 - double{value}});
  }
  return {.name = fmt::format("sum of {}, {} apart", n, stride),
          .run =
              [=](Device& device, const Pointers& /*at*/) {
                On<SquareSum> from(device, parts);
                On<SquareSum> to(device, {{}});
                device.kernels().sum(device.stream(), n, stride, from.data(), to.data());
                return doubles(to.read()[0]);
              },
          .expected =
              [=](std::vector<Doubles>& /*at*/) {
                SquareSum all;
                for (std::size_t i = 0; i < n; ++i) {
                  all.sum += parts[i * stride].sum;
                  all.not_finite = std::min(all.not_finite, parts[i * stride].not_finite);
                }
                return doubles(all);
              },
          .tolerance = 1e-12};
}

/// `begin`: of the bytes.
Operation bytes_to_floats(std::size_t n, std::size_t begin) {
  return {.name = fmt::format("bytes_to_floats of {}, {} from the start", n, begin),
          .arrays = {{.before = Values(n, NAN), .begin = begin / 2}},
          .run =
              [n, begin](Device& device, const Pointers& at) {
                std::vector<std::uint8_t> bytes(begin + n);
                for (std::size_t i = 0; i < n; ++i) {
                  bytes[begin + i] = static_cast<std::uint8_t>(i);
                }
                On<std::uint8_t> from(device, bytes);
                device.kernels().bytes_to_floats(device.stream(), n, from.data() + begin,
                                                 at[0].as<float>());
                return finished(device);
              },
          .expected =
              [](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[0].size(); ++i) {
                  at[0][i] = static_cast<double>(i % 256) / 255;
                }
                return Doubles{};
              },
          .tolerance = 1e-7};
}

} // namespace

std::vector<Operation> flat_operations() {
  std::vector<Operation> all;
  const auto add = [&](const std::vector<Operation>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const std::size_t n : {1, 31, 256, 1000, 100'003}) {
    for (const double factor : {1.0, 0.5}) {
      add(Optimizers(n, 0, factor).all());
    }
  }
  add(Optimizers(50, 0, 1, true).all());      // Of LAMB's ratio.
  for (const std::size_t begin : {1, 2, 4}) { // Of 16 bytes none, none, and all.
    for (const std::size_t n : {1, 3, 1021, 1024}) {
      add(Optimizers(n, begin, 0.5).all());
      add({normalise(n, begin, 5), blend(n, begin), squares(n, begin),
           bytes_to_floats(n, 2 * begin + 1)});
    }
  }
  for (const std::size_t n : {255, 100'003, 1'100'003}) { // More than a GPU's grid has threads.
    add({squares(n, 0)});
  }
  add({normalise(1000, 0, 0), blend(1037, 0), bytes_to_floats(1037, 0), sum(1, 1), sum(7, 3),
       sum(1000, 1), sum(0, 1), squares(7, 1, {3}), squares(1021, 0, {1020, 1}),
       squares(100'003, 0, {77'777, 99'999})});
  return all;
}

} // namespace trainer::test
