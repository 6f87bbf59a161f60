#include "tests/unit/trainer/device/operations/oracles.h"

#include <algorithm>
#include <cmath>

namespace trainer::test {

Ids ids_below(std::size_t count, std::size_t end) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>(
        i % 3 == 0 ? 1 % end : random_at(1, RandomStream::weights, 98, i)[0] % end);
  }
  return ids;
}

CrossEntropy cross_entropy(const Doubles& logits, std::size_t label) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  CrossEntropy found{std::log(sum) + largest - logits[label], {}};
  for (const double logit : logits) {
    found.change.push_back(std::exp(logit - largest) / sum);
  }
  found.change[label] -= 1;
  return found;
}

Doubles dense(const DenseShape& shape, const Doubles& x, const Doubles& weight,
              const Doubles& bias) {
  Doubles y;
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t output = 0; output < shape.outputs; ++output) {
      double sum = bias[output];
      for (std::size_t i = 0; i < shape.inputs; ++i) {
        sum += x[row * shape.inputs + i] * weight[output * shape.inputs + i];
      }
      y.push_back(sum);
    }
  }
  return y;
}

DenseGradients dense_gradients(const DenseShape& shape, const Doubles& x, const Doubles& weight,
                               const Doubles& dy) {
  DenseGradients to{Doubles(x.size()), Doubles(weight.size()), Doubles(shape.outputs)};
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t output = 0; output < shape.outputs; ++output) {
      const double change = dy[row * shape.outputs + output];
      to.dbias[output] += change;
      for (std::size_t i = 0; i < shape.inputs; ++i) {
        const std::size_t of_x = row * shape.inputs + i;
        const std::size_t of_weight = output * shape.inputs + i;
        to.dx[of_x] += change * weight[of_weight];
        to.dweight[of_weight] += change * x[of_x];
      }
    }
  }
  return to;
}

namespace {

/// Calls `each` with the place of a pixel's channels and of the weight's that go with it, for each
/// pixel that is read by value `quarter` of pool (row, column) of an image.
template <typename Each>
void for_taps(const ConvolutionShape& s, std::size_t image, std::size_t pool, std::size_t quarter,
              const Each& each) {
  const std::size_t row = 2 * (pool / (s.width / 2)) + quarter / 2;
  const std::size_t column = 2 * (pool % (s.width / 2)) + quarter % 2;
  for (std::size_t tap = 0; tap < 9; ++tap) {
    const std::size_t y = row + tap / 3; // Both from 1 on.
    const std::size_t x = column + tap % 3;
    if (y >= 1 && y <= s.height && x >= 1 && x <= s.width) {
      each(((image * s.height + y - 1) * s.width + x - 1) * s.channels, tap * s.channels);
    }
  }
}

} // namespace

Convolved convolve(const ConvolutionShape& s, const Doubles& x, const Doubles& weight,
                   const Doubles& bias) {
  Convolved to;
  for (std::size_t i = 0; i < s.images * s.pools() * s.outputs; ++i) {
    const std::size_t output = i % s.outputs;
    const std::size_t pool = i / s.outputs % s.pools();
    Doubles sums(4, bias[output]);
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      for_taps(s, i / s.outputs / s.pools(), pool, quarter,
               [&](std::size_t pixel, std::size_t tap) {
                 for (std::size_t c = 0; c < s.channels; ++c) {
                   sums[quarter] += x[pixel + c] * weight[output * 9 * s.channels + tap + c];
                 }
               });
    }
    const auto best = std::max_element(sums.begin(), sums.end());
    const double largest = *best;
    const bool is_kept = largest > 0;
    to.y.push_back(is_kept ? largest : 0);
    to.chosen.push_back(is_kept ? static_cast<std::uint8_t>(best - sums.begin()) : 4);
    double margin = std::abs(largest);
    for (auto other = sums.begin(); is_kept && other != sums.end(); ++other) {
      margin = other == best ? margin : std::min(margin, largest - *other);
    }
    to.margins.push_back(margin);
  }
  return to;
}

DenseGradients convolution_gradients(const ConvolutionShape& s, const Doubles& x,
                                     const Doubles& weight, const Doubles& dy,
                                     const std::vector<std::uint8_t>& chosen) {
  DenseGradients to{Doubles(x.size()), Doubles(weight.size()), Doubles(s.outputs)};
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (chosen[i] == 4) {
      continue;
    }
    const std::size_t output = i % s.outputs;
    to.dbias[output] += dy[i];
    for_taps(s, i / s.outputs / s.pools(), i / s.outputs % s.pools(), chosen[i],
             [&](std::size_t pixel, std::size_t tap) {
               for (std::size_t c = 0; c < s.channels; ++c) {
                 const std::size_t of_weight = output * 9 * s.channels + tap + c;
                 to.dx[pixel + c] += dy[i] * weight[of_weight];
                 to.dweight[of_weight] += dy[i] * x[pixel + c];
               }
             });
  }
  return to;
}

Normed norm(const NormShape& shape, const Doubles& x, const Doubles& gain, const Doubles& shift) {
  Normed to;
  const auto width = static_cast<double>(shape.width);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const double* const of_row = x.data() + row * shape.width;
    double mean = 0;
    for (std::size_t i = 0; i < shape.width; ++i) {
      mean += of_row[i] / width;
    }
    double variance = 0;
    for (std::size_t i = 0; i < shape.width; ++i) {
      variance += (of_row[i] - mean) * (of_row[i] - mean) / width;
    }
    const double by = 1 / std::sqrt(variance + double{shape.epsilon});
    for (std::size_t i = 0; i < shape.width; ++i) {
      to.y.push_back((of_row[i] - mean) * by * gain[i] + shift[i]);
    }
    to.moments.push_back(mean);
    to.moments.push_back(by);
  }
  return to;
}

NormGradients norm_gradients(const NormShape& shape, const Doubles& x, const Doubles& gain,
                             const Doubles& dy) {
  const Normed of = norm(shape, x, Doubles(shape.width, 1), Doubles(shape.width));
  NormGradients to{Doubles(x.size()), Doubles(shape.width), Doubles(shape.width)};
  const auto width = static_cast<double>(shape.width);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    double mean = 0;  // Of the gradient at what is normalised,
    double along = 0; // and of its product with that.
    for (std::size_t i = 0; i < shape.width; ++i) {
      const std::size_t place = row * shape.width + i;
      to.dgain[i] += dy[place] * of.y[place];
      to.dshift[i] += dy[place];
      mean += dy[place] * gain[i] / width;
      along += dy[place] * gain[i] * of.y[place] / width;
    }
    for (std::size_t i = 0; i < shape.width; ++i) {
      const std::size_t place = row * shape.width + i;
      to.dx[place] = of.moments[2 * row + 1] * (dy[place] * gain[i] - mean - of.y[place] * along);
    }
  }
  return to;
}

double AttentionInputs::kept(std::size_t line, std::size_t key) const {
  return keep.empty() ? 1 : is_kept(keep.data() + line * shape.words_a_line(), key) ? scale : 0;
}

namespace {

/// One query of a head, and the keys that it sees.
struct Line {
  std::size_t number; ///< Of all lines of probabilities.
  std::size_t query;  ///< Where its values begin,
  std::vector<std::size_t> keys;
  Doubles p;
};

double dot(const Doubles& a, std::size_t at_a, const Doubles& b, std::size_t at_b,
           std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += a[at_a + i] * b[at_b + i];
  }
  return sum;
}

double scale_of(const AttentionShape& s) { return 1 / std::sqrt(static_cast<double>(s.depth)); }

template <typename Each>
void for_lines(const AttentionInputs& in, const Doubles& query, const Doubles& key,
               const Each& each) {
  const AttentionShape& s = in.shape;
  for (std::size_t number = 0; number < s.lines(); ++number) {
    const std::size_t token = number % s.length;
    const std::size_t head = number / s.length % s.heads;
    const std::size_t row = number / s.length / s.heads;
    const auto at = [&](std::size_t of_token) {
      return (row * s.length + of_token) * s.width() + head * s.depth;
    };
    const auto length = static_cast<std::size_t>(in.lengths[row]);
    Line line{number, at(token), {}, {}};
    double sum = 0;
    for (std::size_t other = 0; other < length; ++other) {
      if (!s.is_causal || token >= length || other <= token) {
        line.keys.push_back(at(other));
        line.p.push_back(std::exp(scale_of(s) * dot(query, line.query, key, at(other), s.depth)));
        sum += line.p.back();
      }
    }
    for (double& p : line.p) {
      p /= sum;
    }
    each(line);
  }
}

} // namespace

Doubles attention(const AttentionInputs& in, const Doubles& query, const Doubles& key,
                  const Doubles& value) {
  Doubles to(query.size());
  for_lines(in, query, key, [&](const Line& line) {
    for (std::size_t other = 0; other < line.keys.size(); ++other) {
      for (std::size_t i = 0; i < in.shape.depth; ++i) {
        to[line.query + i] +=
            line.p[other] * in.kept(line.number, other) * value[line.keys[other] + i];
      }
    }
  });
  return to;
}

AttentionGradients attention_gradients(const AttentionInputs& in, const Doubles& query,
                                       const Doubles& key, const Doubles& value,
                                       const Doubles& dcontext) {
  AttentionGradients to{Doubles(query.size()), Doubles(query.size()), Doubles(query.size())};
  const std::size_t depth = in.shape.depth;
  for_lines(in, query, key, [&](const Line& line) {
    Doubles dp;
    double mean = 0;
    for (std::size_t other = 0; other < line.keys.size(); ++other) {
      dp.push_back(in.kept(line.number, other) *
                   dot(dcontext, line.query, value, line.keys[other], depth));
      mean += line.p[other] * dp.back();
    }
    for (std::size_t other = 0; other < line.keys.size(); ++other) {
      const double ds = line.p[other] * (dp[other] - mean) * scale_of(in.shape);
      const double p = line.p[other] * in.kept(line.number, other);
      for (std::size_t i = 0; i < depth; ++i) {
        const std::size_t of_query = line.query + i;
        const std::size_t of_key = line.keys[other] + i;
        to.dquery[of_query] += ds * key[of_key];
        to.dkey[of_key] += ds * query[of_query];
        to.dvalue[of_key] += p * dcontext[of_query];
      }
    }
  });
  return to;
}

} // namespace trainer::test
