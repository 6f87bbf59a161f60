#include "trainer/nn/cpu/text_embedding.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

void add(std::size_t count, const float* from, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] += from[i];
  }
}

} // namespace

TextEmbedding::TextEmbedding(const std::string& name, const EmbeddingShape& shape,
                             const DropoutRule& rule, std::uint32_t site, TensorTable& tensors,
                             const CpuKernels& kernels)
    : shape_(shape), unit_(tensors.begin_unit()), kernels_(&kernels.transformer),
      norm_(name + ".LayerNorm", shape.width, shape.epsilon, tensors, kernels),
      types_(
          tensors[tensors.add(name + ".token_type_embeddings.weight", {shape.types, shape.width})]
              .in_unit),
      positions_(
          tensors[tensors.add(name + ".position_embeddings.weight", {shape.positions, shape.width})]
              .in_unit),
      words_(tensors[tensors.add(name + ".word_embeddings.weight", {shape.vocabulary, shape.width})]
                 .in_unit),
      dropout_(rule, site, kernels) {}

void TextEmbedding::make_room(std::size_t rows, std::size_t length) {
  sum_ = Matrix(rows * length, shape_.width);
  x_ = Matrix(rows * length, shape_.width);
  norm_.make_room(rows * length);
}

const Matrix& TextEmbedding::forward(const UnitMemory& memory, const TextPass& pass,
                                     std::span<const std::int32_t> ids) {
  const std::size_t width = shape_.width;
  const std::size_t n = pass.tokens();
  const float* type = memory.weights + types_;
  for (std::size_t token = 0; token < n; ++token) {
    const auto id = static_cast<std::size_t>(ids[token]); // A negative one is too large.
    if (id >= shape_.vocabulary) {
      throw DataError(fmt::format("token {} of the text, and the model's vocabulary has {}; train "
                                  "with the vocabulary that the text was tokenized with",
                                  ids[token], shape_.vocabulary));
    }
    const std::size_t at = token % pass.length + shape_.first_position;
    const float* word = memory.weights + words_ + id * width;
    const float* position = memory.weights + positions_ + at * width;
    float* to = sum_.row(token);
    for (std::size_t i = 0; i < width; ++i) {
      to[i] = word[i] + type[i] + position[i];
    }
  }
  const RowShape wide = sum_.shape(n);
  norm_.forward(memory, wide, sum_.data(), x_.data());
  dropout_.draw(pass, pass.length * width / k_panel);
  if (dropout_.at().keep != nullptr) {
    kernels_->drop(wide, dropout_.at(), x_.data(), x_.data());
  }
  return x_;
}

void TextEmbedding::backward(const UnitMemory& memory, const TextPass& pass,
                             std::span<const std::int32_t> ids, const Matrix& change) {
  const std::size_t width = shape_.width;
  const std::size_t n = pass.tokens();
  if (dropout_.at().keep != nullptr) {
    kernels_->drop(change.shape(n), dropout_.at(), change.data(), change.data());
  }
  norm_.backward(memory, change.shape(n), sum_.data(), change.data(), pass.accumulate);
  if (!pass.accumulate) {
    std::fill_n(memory.gradients + types_, shape_.types * width, 0.0F);
    std::fill_n(memory.gradients + positions_, shape_.positions * width, 0.0F);
  }
  for (std::size_t token = 0; token < n; ++token) {
    const float* from = change.row(token);
    const std::size_t at = token % pass.length + shape_.first_position;
    add(width, from, memory.gradients + types_);
    add(width, from, memory.gradients + positions_ + at * width);
    add(width, from, memory.gradients + words_ + static_cast<std::size_t>(ids[token]) * width);
  }
}

} // namespace trainer
