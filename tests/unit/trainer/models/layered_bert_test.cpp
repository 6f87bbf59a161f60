// BERT as a GPU computes it, over the CPU's plain kernels, against the CPU's own BERT.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/unit/trainer/models/noting_owner.h"
#include "tests/unit/trainer/models/text.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/models/bert.h"

using namespace trainer;
using trainer::test::RandomText;

namespace {

constexpr float k_half = 0.5F;

constexpr std::size_t k_vocabulary = 101;

ModelOptions layered_options(double dropout, const std::string& name = "bert") {
  ModelOptions options{.name = name, .seed = 5};
  options.bert = {.layers = 2,
                  .hidden = 32,
                  .heads = 2,
                  .inner = 48,
                  .max_length = 24,
                  .vocabulary = k_vocabulary,
                  .dropout = dropout};
  return options;
}

struct OverArenas {
  explicit OverArenas(std::unique_ptr<MaskedLanguageModel> model_)
      : model(std::move(model_)), parameters(model->tensors().arena_size()),
        gradients(parameters.size()), owner(model->units(), {parameters.span(), gradients.span()}) {
  }
  Score pass(const Batch& batch, bool accumulate = false) {
    Score score;
    model->forward_backward(batch, &k_half, accumulate, owner, &score);
    return score;
  }
  Score evaluate(const Batch& batch) {
    Score score;
    model->evaluate(batch, owner, &score);
    return score;
  }

  std::unique_ptr<MaskedLanguageModel> model;
  Buffer parameters;
  Buffer gradients;
  test::NotingOwner owner;
};

/// Both, with the same weights, which they have by name: as large as a trained model's.
struct Both {
  explicit Both(const ModelOptions& options)
      : own(make_bert(options, device)), layered(make_layered_bert(options, device)) {
    own.model->initialize(3, own.parameters.span());
    for (const Tensor& tensor : own.model->tensors().tensors()) {
      for (std::size_t i = 0; i < tensor.count(); ++i) { // Of panels all are whole here.
        float& value = own.parameters.data()[tensor.offset + i];
        value = tensor.shape.size() > 1 ? 6 * value : value + 0.1F * static_cast<float>(i % 3);
      }
    }
    layered.model->tensors().import_arena(own.model->tensors().export_arena(own.parameters.span()),
                                          layered.parameters.span());
  }

  /// Of each tensor, by name.
  void check_gradients() const {
    const auto expected = own.model->tensors().export_arena(own.gradients.span());
    const auto found = layered.model->tensors().export_arena(layered.gradients.span());
    REQUIRE(found.size() == expected.size());
    for (std::size_t t = 0; t < expected.size(); ++t) {
      CAPTURE(expected[t].name);
      REQUIRE(found[t].name == expected[t].name);
      REQUIRE(found[t].shape == expected[t].shape);
      float largest = 0;
      float worst = 0;
      for (std::size_t i = 0; i < expected[t].values.size(); ++i) {
        largest = std::max(largest, std::abs(expected[t].values[i]));
        worst = std::max(worst, std::abs(found[t].values[i] - expected[t].values[i]));
      }
      CHECK(worst <= 1e-4F * (largest + 0.01F));
    }
  }

  CpuDevice device;
  OverArenas own;
  OverArenas layered;
};

} // namespace

TEST_CASE("BERT over any device's kernels has the CPU's loss and gradients, dropout included") {
  for (const char* name : {"bert", "roberta"}) {
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(name);
      CAPTURE(dropout);
      Both both(layered_options(dropout, name));
      RandomText text(20, 3, k_vocabulary, {20, 13, 3});
      text.masked[5] = -1; // Two of the second row.
      for (const bool accumulate : {false, true}) {
        const Score expected = both.own.pass(text.batch(), accumulate);
        const Score found = both.layered.pass(text.batch(), accumulate);
        CHECK(found.loss == doctest::Approx(expected.loss).epsilon(1e-5));
        CHECK(found.correct == expected.correct);
        CHECK(found.count == 8);
        both.check_gradients();
      }
      CHECK(both.layered.evaluate(text.batch()).loss ==
            doctest::Approx(both.own.evaluate(text.batch()).loss).epsilon(1e-5));
    }
  }
}

TEST_CASE("BERT over any device's kernels begins with the CPU's weights") {
  Both both(layered_options(0));
  both.own.model->initialize(9, both.own.parameters.span());
  both.layered.model->initialize(9, both.layered.parameters.span());
  const auto expected = both.own.model->tensors().export_arena(both.own.parameters.span());
  const auto found = both.layered.model->tensors().export_arena(both.layered.parameters.span());
  REQUIRE(found.size() == expected.size());
  for (std::size_t t = 0; t < expected.size(); ++t) {
    CAPTURE(expected[t].name);
    CHECK((found[t].values == expected[t].values || expected[t].shape.size() == 1));
    if (expected[t].name.ends_with("LayerNorm.weight")) {
      CHECK(std::all_of(found[t].values.begin(), found[t].values.end(),
                        [](float gain) { return gain == 1; }));
    }
  }
}

TEST_CASE("BERT over any device's kernels tells its owner what the CPU's does") {
  Both both(layered_options(0.1));
  const RandomText text(20, 3, k_vocabulary, {20, 13});
  both.layered.pass(text.batch());
  both.own.pass(text.batch());
  CHECK(both.layered.owner.told == both.own.owner.told);
  CHECK(both.layered.model->units() == both.own.model->units());
  CHECK(both.layered.model->describe() == both.own.model->describe());
}

TEST_CASE("BERT over any device's kernels computes activations again to the same gradients") {
  ModelOptions options = layered_options(0.1);
  options.bert.layers = 3;
  Both kept(options);
  options.bert.recompute = true;
  Both again(options);
  const RandomText text(20, 3, k_vocabulary, {20, 13});
  CHECK(kept.layered.pass(text.batch()).loss == again.layered.pass(text.batch()).loss);
  CHECK(std::equal(kept.layered.gradients.data(),
                   kept.layered.gradients.data() + kept.layered.gradients.size(),
                   again.layered.gradients.data()));
}

TEST_CASE("BERT over any device's kernels takes batches of other sizes, and rows with no blank") {
  Both both(layered_options(0.2));
  const RandomText few(12, 2, k_vocabulary, {12});
  RandomText many(20, 3, k_vocabulary, {20, 13, 20, 9});
  std::fill_n(many.masked.begin(), 3, -1);
  RandomText none(12, 2, k_vocabulary, {12});
  none.masked.assign(none.masked.size(), -1);
  const RandomText unmasked(12, 0, k_vocabulary, {12});
  for (const RandomText* text : {&few, &static_cast<const RandomText&>(many), &few,
                                 &static_cast<const RandomText&>(none), &unmasked}) {
    const Score expected = both.own.pass(text->batch());
    const Score found = both.layered.pass(text->batch());
    CHECK(found.loss == doctest::Approx(expected.loss).epsilon(1e-5));
    CHECK(found.count == expected.count);
    both.check_gradients();
  }
  const RandomText longer(25, 3, k_vocabulary, {25});
  CHECK_THROWS_AS(both.layered.evaluate(longer.batch()), UsageError);
}

TEST_CASE("BERT over any device's kernels gives a blank's logits as the CPU's does") {
  Both both(layered_options(0));
  RandomText text(20, 3, k_vocabulary, {20, 13});
  text.masked[2] = -1;
  const std::vector<float> expected = both.own.model->logits(text.batch(), both.own.owner);
  const std::vector<float> found = both.layered.model->logits(text.batch(), both.layered.owner);
  REQUIRE(found.size() == 5 * k_vocabulary);
  REQUIRE(expected.size() == found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-4).scale(0.1));
  }
}
