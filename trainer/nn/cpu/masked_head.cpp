#include "trainer/nn/cpu/masked_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_words = 144; ///< In a block: whole tiles of 6 and 12 rows.

} // namespace

MaskedHead::MaskedHead(const HeadNames& names, std::size_t width, std::size_t vocabulary,
                       float epsilon, TensorTable& tensors, const CpuKernels& kernels)
    : width_(width), vocabulary_(vocabulary), kernels_(&kernels), unit_(tensors.begin_unit()),
      bias_(tensors[tensors.add(names.bias, {vocabulary})].in_unit),
      norm_(names.norm, width, epsilon, tensors, kernels),
      dense_(names.dense, width, width, tensors, kernels) {}

void MaskedHead::make_room(std::size_t most_masked) {
  const std::size_t most = padded(std::max<std::size_t>(most_masked, 1));
  for (Matrix* wide : {&picked_, &u_, &g_, &h_, &change_}) {
    *wide = Matrix(most, width_);
  }
  norm_.make_room(most);
  packed_ = Buffer(most * width_);
  weight_room_ = Buffer(width_ * width_);
  logits_ = Matrix(vocabulary_, most);
}

std::size_t MaskedHead::filled() const { return padded(std::max<std::size_t>(places_.size(), 1)); }

Score MaskedHead::forward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                          const Tokens& tokens, const Matrix& x) {
  places_.clear();
  targets_.clear();
  for (std::size_t i = 0; i < pass.rows * tokens.most_masked; ++i) {
    if (tokens.masked[i] < 0) {
      continue;
    }
    places_.push_back(i / tokens.most_masked * pass.length +
                      static_cast<std::size_t>(tokens.masked[i]));
    targets_.push_back(static_cast<std::size_t>(tokens.targets[i]));
    if (targets_.back() >= vocabulary_) {
      throw DataError(fmt::format("token {} of the text, and the model's vocabulary has {}; train "
                                  "with the vocabulary that the text was tokenized with",
                                  tokens.targets[i], vocabulary_));
    }
  }
  const std::size_t m = places_.size();
  const std::size_t filled = this->filled();
  for (std::size_t i = 0; i < m; ++i) {
    std::copy_n(x.row(places_[i]), width_, picked_.row(i));
  }
  dense_.forward(memory, m, picked_.data(), picked_.stride(), u_.data(), u_.stride());
  kernels_->transformer.gelu(u_.shape(m), dense_.bias(memory), u_.data(), g_.data());
  norm_.forward(memory, g_.shape(m), g_.data(), h_.data());
  std::fill(h_.row(m), h_.row(filled), 0.0F);
  kernels_->transformer.pack_transposed(h_.shape(filled), h_.data(), packed_.data());

  largest_.assign(filled, -std::numeric_limits<float>::infinity());
  log_sum_.assign(filled, 0);
  for (std::size_t word = 0; word < vocabulary_; word += k_words) {
    const std::size_t count = std::min(k_words, vocabulary_ - word);
    kernels_->product({.m = count, // logits (count, M) = words (count, H)·hᵀ
                       .k = width_,
                       .panels = filled / k_panel,
                       .a = words.weights + word * width_,
                       .a_row = width_,
                       .b = packed_.data(),
                       .c = logits_.row(word),
                       .c_row = logits_.stride(),
                       .c_panel = k_panel});
    kernels_->transformer.log_sum({count, filled, logits_.stride()}, memory.weights + bias_ + word,
                                  logits_.row(word), largest_.data(), log_sum_.data());
  }
  Score score{.count = static_cast<std::int64_t>(m)};
  for (std::size_t i = 0; i < filled; ++i) {
    log_sum_[i] = largest_[i] + std::log(log_sum_[i]);
  }
  for (std::size_t i = 0; i < m; ++i) {
    const float logit = logits_.row(targets_[i])[i];
    score.loss += double{log_sum_[i]} - double{logit};
    score.correct += logit >= largest_[i] ? 1 : 0;
  }
  return score;
}

void MaskedHead::backward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                          const Tokens& tokens, float scale, const Matrix& change) {
  const bool more = pass.accumulate;
  const std::size_t m = std::max<std::size_t>(places_.size(), 1); // Of none, a gradient of 0.
  const std::size_t filled = this->filled();
  weight_.assign(filled, 0);
  for (std::size_t i = 0, row = 0; row < pass.rows; ++row) {
    const auto masked = tokens.masked.subspan(row * tokens.most_masked, tokens.most_masked);
    const auto count = static_cast<std::size_t>(
        std::count_if(masked.begin(), masked.end(), [](std::int32_t at) { return at >= 0; }));
    std::fill_n(weight_.begin() + static_cast<std::ptrdiff_t>(i), count,
                scale / static_cast<float>(count));
    i += count;
  }
  by_word_.resize(places_.size());
  std::iota(by_word_.begin(), by_word_.end(), 0);
  std::stable_sort(by_word_.begin(), by_word_.end(),
                   [&](std::size_t a, std::size_t b) { return targets_[a] < targets_[b]; });
  auto next = by_word_.begin();
  float* dbias = memory.gradients + bias_;
  if (!more) {
    std::fill_n(dbias, vocabulary_, 0.0F);
  }
  for (std::size_t word = 0; word < vocabulary_; word += k_words) {
    const std::size_t count = std::min(k_words, vocabulary_ - word);
    float* block = logits_.row(word); // (count, M), their gradient from here on
    kernels_->transformer.probabilities({count, filled, logits_.stride()}, log_sum_.data(),
                                        weight_.data(), block, dbias + word);
    for (; next != by_word_.end() && targets_[*next] < word + count; ++next) {
      logits_.row(targets_[*next])[*next] -= weight_[*next];
      dbias[targets_[*next]] -= weight_[*next];
    }
    kernels_->product({.m = count, // dwords (count, H) = block·h
                       .k = filled,
                       .panels = width_ / k_panel,
                       .a = block,
                       .a_row = logits_.stride(),
                       .b = h_.data(),
                       .c = words.gradients + word * width_,
                       .c_row = width_,
                       .c_panel = k_panel,
                       .accumulate = more,
                       .b_row = h_.stride(),
                       .b_panel = k_panel});
    kernels_->product({.m = filled, // dh (M, H) = blockᵀ·words
                       .k = count,
                       .panels = width_ / k_panel,
                       .a = block,
                       .a_row = 1,
                       .a_column = logits_.stride(),
                       .b = words.weights + word * width_,
                       .c = change_.data(),
                       .c_row = change_.stride(),
                       .c_panel = k_panel,
                       .accumulate = word > 0,
                       .b_row = width_,
                       .b_panel = k_panel});
  }
  norm_.backward(memory, g_.shape(m), g_.data(), change_.data(), more);
  if (!more) {
    std::fill_n(dense_.bias_gradient(memory), width_, 0.0F);
  }
  kernels_->transformer.gelu_backward(u_.shape(m), u_.data(), change_.data(),
                                      dense_.bias_gradient(memory));
  dense_.backward_weight(memory, m, picked_.data(), picked_.stride(), change_.data(),
                         change_.stride(), more);
  dense_.backward_input(memory, m, change_.data(), change_.stride(), picked_.data(),
                        picked_.stride(), false, weight_room_.data());
  for (std::size_t token = 0; token < pass.tokens(); ++token) {
    std::fill_n(change.row(token), width_, 0.0F);
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::copy_n(picked_.row(i), width_, change.row(places_[i]));
  }
}

void MaskedHead::logits(std::size_t masked, std::span<float> to) const {
  for (std::size_t word = 0; word < vocabulary_; ++word) {
    to[word] = logits_.row(word)[masked];
  }
}

} // namespace trainer
