#include "trainer/models/transformer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "tests/unit/trainer/largest_difference.h"
#include "tests/unit/trainer/models/noting_owner.h"
#include "tests/unit/trainer/models/text.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/optim/optimizer.h"

using namespace trainer;
using trainer::test::RandomText;

namespace {

constexpr float k_one = 1;

constexpr std::size_t k_words = 101;

ModelOptions small_bert(double dropout = 0) {
  ModelOptions options{.name = "bert", .seed = 5};
  options.transformer = {.layers = 2,
                         .hidden = 32,
                         .heads = 2,
                         .inner = 48,
                         .max_length = 24,
                         .vocabulary = k_words,
                         .dropout = dropout};
  return options;
}

ModelOptions small_gpt2(double dropout = 0) {
  ModelOptions options = small_bert(dropout);
  options.name = "gpt2";
  options.transformer.norm_epsilon = 1e-5;
  return options;
}

/// A shape of which nothing fills a vector, or a word of keep bits.
ModelOptions odd(ModelOptions options) {
  options.transformer.hidden = 39;
  options.transformer.heads = 3;
  options.transformer.inner = 37;
  return options;
}

/// Its rows' tokens, each of which tells the next.
RandomText next_of(RandomText text) {
  for (std::size_t i = 0; i < text.masked.size(); ++i) {
    const std::size_t row = i / text.most_masked;
    const std::size_t at = i % text.most_masked;
    const bool is_told = at + 1 < static_cast<std::size_t>(text.lengths[row]);
    text.masked[i] = is_told ? static_cast<std::int32_t>(at) : -1;
    text.targets[i] = is_told ? text.ids[row * text.length + at + 1] : 0;
  }
  return text;
}

struct Fixture {
  explicit Fixture(const ModelOptions& options, const CpuKernels& kernels = best_kernels())
      : device(kernels), model(make_language_model(options, device)),
        parameters(model->tensors().arena_size()), gradients(parameters.size()),
        owner(model->units(), {parameters.span(), gradients.span()}) {
    model->initialize(3, parameters.span());
  }
  /// Weights as large as a trained model's: gradients that rounding does not hide.
  void enlarge() {
    for (const Tensor& tensor : model->tensors().tensors()) {
      if (tensor.shape.size() > 1) {
        for (float& value : parameters.span().subspan(tensor.offset, tensor.size)) {
          value *= 6;
        }
      }
    }
  }
  Score pass(const Batch& batch, bool accumulate = false) {
    Score score;
    model->forward_backward(batch, &k_one, accumulate, owner, &score);
    return score;
  }

  CpuDevice device;
  std::unique_ptr<LanguageModel> model;
  Buffer parameters;
  Buffer gradients;
  test::NotingOwner owner;
};

/// Of each tensor the values with the largest gradients, and a few others.
void check_gradients(const CpuKernels& kernels, const ModelOptions& options) {
  Fixture f(options, kernels);
  f.enlarge();
  const RandomText text(20, 3, k_words, {20, 13, 17});
  f.pass(text.batch());
  const Buffer gradients(f.gradients.size());
  std::copy_n(f.gradients.data(), gradients.size(), gradients.data());
  for (std::size_t t = 0; t < f.model->tensors().tensors().size(); ++t) {
    const Tensor& tensor = f.model->tensors()[t];
    CAPTURE(tensor.name);
    std::vector<std::size_t> order(tensor.size);
    std::iota(order.begin(), order.end(), tensor.offset);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(gradients.data()[a]) > std::abs(gradients.data()[b]);
    });
    const double largest = std::abs(gradients.data()[order.front()]);
    CHECK((largest > 1e-4 || tensor.name.ends_with("key.bias"))); // Which changes no softmax.
    for (std::size_t i = 0; i < order.size(); i += i < 4 ? 1 : order.size() / 3) {
      float& value = f.parameters.data()[order[i]];
      const float old = value;
      const auto loss_at = [&](float at) {
        value = at;
        return f.pass(text.batch()).loss / 3; // Of three masked tokens a row.
      };
      constexpr float k_step = 4e-3F;
      const double numeric = (loss_at(old + k_step) - loss_at(old - k_step)) / (2.0 * k_step);
      value = old;
      CAPTURE(i);
      CHECK(gradients.data()[order[i]] ==
            doctest::Approx(numeric).epsilon(0.02).scale(0.05 * largest + 0.03));
    }
  }
}

} // namespace

TEST_CASE("BERT's gradients agree with finite differences, padded rows and dropout included") {
  check_gradients(best_kernels(), small_bert());
  check_gradients(best_kernels(), small_bert(0.3));
  check_gradients(best_kernels(), odd(small_bert(0.3)));
}

TEST_CASE("BERT's gradients by portable kernels are those by this machine's own") {
  for (const ModelOptions& options : {small_bert(), small_bert(0.3), odd(small_bert(0.3))}) {
    Fixture portable(options, portable_kernels());
    Fixture best(options, best_kernels());
    const RandomText text(20, 3, k_words, {20, 13, 17});
    for (Fixture* const f : {&portable, &best}) {
      f->enlarge();
      f->pass(text.batch());
    }
    for (const Tensor& tensor : best.model->tensors().tensors()) {
      CAPTURE(tensor.name);
      const auto of = [&](const Fixture& f) {
        return f.gradients.span().subspan(tensor.offset, tensor.size);
      };
      const std::vector<float> none(tensor.size);
      CHECK(test::largest_difference(of(portable), of(best)) <=
            1e-3 * test::largest_difference(of(best), none) + 1e-5);
    }
  }
}

TEST_CASE("a table says which tensors are embeddings") {
  const auto embeddings_of = [](const ModelOptions& options) {
    const Fixture f(options);
    std::vector<std::string> names;
    for (const Tensor& tensor : f.model->tensors().tensors()) {
      if (tensor.is_embedding) {
        names.push_back(tensor.name);
      }
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(embeddings_of(small_bert()) == Names{"bert.embeddings.token_type_embeddings.weight",
                                             "bert.embeddings.position_embeddings.weight",
                                             "bert.embeddings.word_embeddings.weight"});
  CHECK(embeddings_of(small_gpt2()) == Names{"transformer.wpe.weight", "transformer.wte.weight"});
}

TEST_CASE("a sample takes six FLOPs per token and weight of its layers, and those of attention and "
          "head") {
  constexpr double k_length = 20;
  constexpr double k_masked = 3;
  for (const ModelOptions& options : {small_bert(), small_gpt2()}) {
    Fixture f(options);
    CHECK(f.model->flops() == 0); // Before the first batch, whose length it does not know.
    f.pass(RandomText(20, 3, k_words, {20, 13, 17}).batch());
    double in_layers = 0;
    double in_head = 0;
    for (const Tensor& tensor : f.model->tensors().tensors()) {
      const bool is_of_head = tensor.name.starts_with("cls") ||
                              tensor.name.find("word") != std::string::npos ||
                              tensor.name.find("wte") != std::string::npos;
      if (tensor.shape.size() > 1 && (is_of_head || !tensor.is_embedding)) {
        (is_of_head ? in_head : in_layers) += static_cast<double>(tensor.count());
      }
    }
    const TransformerOptions& o = options.transformer;
    const double attention = 12 * k_length * k_length * static_cast<double>(o.hidden * o.layers);
    CHECK(f.model->flops() == 6 * (k_length * in_layers + k_masked * in_head) + attention);
  }
}

TEST_CASE("BERT's gradients are reported final from the arena's start to its end") {
  Fixture f(small_bert());
  const RandomText text(20, 3, k_words, {20, 20});
  f.pass(text.batch());
  const std::vector<std::size_t> reports = f.owner.all("final");
  CHECK(std::is_sorted(reports.begin(), reports.end()));
  for (const ArenaRange& unit : f.model->units()) {
    CHECK(std::find(reports.begin(), reports.end(), unit.last) != reports.end());
  }
  CHECK(f.owner.all("need") == std::vector<std::size_t>{3, 2, 1, 0, 1, 2});
  CHECK(f.owner.all("done") == std::vector<std::size_t>{2, 1, 0, 1, 2, 3});
}

TEST_CASE("a batch's gradients are the same however it is split into passes, dropout included") {
  Fixture f(small_bert(0.2));
  const RandomText text(20, 3, k_words, {20, 11, 20, 16});
  const Score whole = f.pass(text.batch());
  const std::vector<float> gradients(f.gradients.span().begin(), f.gradients.span().end());
  Score parts = f.pass(text.batch().slice(0, 1));
  parts += f.pass(text.batch().slice(1, 3), true);
  CHECK(parts.loss == doctest::Approx(whole.loss).epsilon(1e-6));
  CHECK(parts.count == whole.count);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    CHECK(f.gradients.data()[i] == doctest::Approx(gradients[i]).epsilon(1e-4).scale(0.01));
  }
}

TEST_CASE("what is masked and what pads a row are not seen") {
  Fixture f(small_bert());
  f.enlarge();
  RandomText text(20, 3, k_words, {13, 20});
  Score before;
  f.model->evaluate(text.batch(), f.owner, &before);
  for (std::size_t at = 13; at < 20; ++at) {
    text.ids[at] = 7;
  }
  Score padded_otherwise;
  f.model->evaluate(text.batch(), f.owner, &padded_otherwise);
  CHECK(padded_otherwise.loss == before.loss);
  text.ids[12] = (text.ids[12] + 1) % static_cast<std::int32_t>(k_words);
  Score changed;
  f.model->evaluate(text.batch(), f.owner, &changed);
  CHECK(changed.loss != before.loss);
}

TEST_CASE("a row's loss is the mean over its masked tokens, of however many it has") {
  Fixture f(small_bert());
  RandomText text(20, 3, k_words, {20, 20});
  text.masked[5] = -1; // Two of the second row.
  std::vector<float> sum(f.gradients.size());
  for (std::size_t row = 0; row < 2; ++row) {
    f.pass(text.batch().slice(row, 1));
    std::transform(sum.begin(), sum.end(), f.gradients.data(), sum.begin(), std::plus<>());
  }
  const Score both = f.pass(text.batch());
  CHECK(both.count == 5);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    CHECK(f.gradients.data()[i] == doctest::Approx(sum[i]).epsilon(1e-4).scale(0.01));
  }
  text.masked.assign(text.masked.size(), -1);
  CHECK(f.pass(text.batch()).count == 0);
  CHECK(std::all_of(f.gradients.data(), f.gradients.data() + f.gradients.size(),
                    [](float value) { return value == 0; }));
}

TEST_CASE("dropout drops as many as it says, others at each position, and keeps the mean") {
  const ModelOptions options = small_bert(0.5);
  Fixture f(options);
  const RandomText text(20, 3, k_words, {20, 20});
  Batch batch = text.batch();
  const double first = f.pass(batch).loss;
  CHECK(f.pass(batch).loss == first);
  batch.position += 1;
  CHECK(f.pass(batch).loss != first);
  const KeepBits which{9, 4, 1000, 6554}; // A tenth.
  std::vector<std::uint16_t> words(4096);
  f.device.kernels().text->keep_bits(f.device.stream(), which, words.size(), words.data());
  const auto kept = std::accumulate(words.begin(), words.end(), 0, [](int sum, std::uint16_t word) {
    return sum + __builtin_popcount(word);
  });
  CHECK(kept / 65536.0 == doctest::Approx(0.9).epsilon(0.005));
  for (std::uint32_t half = 0; half < 2; ++half) { // The numbers are random_at()'s.
    const auto numbers = random_at(9, RandomStream::dropout, 4, 1000 + 2 * 77 + half);
    for (std::uint32_t bit = 0; bit < 8; ++bit) {
      const std::uint32_t number = numbers[bit / 2] >> (bit % 2 * 16) & 0xFFFFU;
      CHECK((words[77] >> (8 * half + bit) & 1) == (number >= 6554 ? 1 : 0));
    }
  }
}

TEST_CASE("kernels with fused multiply-add give BERT the same bits") {
  const RandomText text(20, 3, k_words, {20, 13});
  std::vector<float> gradients;
  for (const CpuKernels* kernels : {avx2_kernels(), avx512_kernels()}) {
    if (kernels == nullptr) {
      continue;
    }
    Fixture f(small_bert(0.1), *kernels);
    f.pass(text.batch());
    if (!gradients.empty()) {
      CHECK(std::equal(gradients.begin(), gradients.end(), f.gradients.data()));
    }
    gradients.assign(f.gradients.span().begin(), f.gradients.span().end());
  }
}

TEST_CASE("training teaches BERT its masked tokens") {
  Fixture f(small_bert(0.1));
  const RandomText text(20, 3, k_words, {20, 13, 20, 9});
  Optimizer adam({.learning_rate = 2e-3}, f.parameters.span(), f.gradients.span(), f.device);
  Score score;
  Batch batch = text.batch();
  for (int i = 0; i < 600; ++i, batch.position += batch.rows) { // Else all drop the same values.
    f.pass(batch);
    adam.begin_step();
    adam.update(0, f.parameters.size());
  }
  f.model->evaluate(text.batch(), f.owner, &score);
  CHECK(score.correct == 12);
  CHECK(score.loss / 12 < 0.3);
  const std::vector<float> words = f.model->logits(text.batch().slice(1, 1), f.owner);
  REQUIRE(words.size() == 3 * k_words);
  CHECK(std::max_element(words.begin(), words.begin() + k_words) - words.begin() ==
        text.targets[3]);
}

TEST_CASE("activations that are computed again give the gradients of those that were kept") {
  const RandomText text(20, 3, k_words, {20, 13, 20});
  ModelOptions options = small_bert(0.1);
  options.transformer.layers = 3;
  Fixture kept(options);
  options.transformer.recompute = true;
  Fixture again(options);
  for (const bool accumulate : {false, true}) {
    CHECK(kept.pass(text.batch(), accumulate).loss == again.pass(text.batch(), accumulate).loss);
    CHECK(std::equal(kept.gradients.data(), kept.gradients.data() + kept.gradients.size(),
                     again.gradients.data()));
  }
}

TEST_CASE("batches of other sizes, and rows with nothing masked, are those of a model that saw no "
          "others") {
  const RandomText few(12, 2, k_words, {12});
  RandomText many(20, 3, k_words, {20, 13, 20, 9});
  std::fill_n(many.masked.begin(), 3, -1);
  RandomText none(12, 2, k_words, {12});
  none.masked.assign(none.masked.size(), -1);
  const RandomText unmasked(12, 0, k_words, {12});
  Fixture f(small_bert(0.2));
  for (const RandomText* text : {&few, &static_cast<const RandomText&>(many), &few,
                                 &static_cast<const RandomText&>(none), &unmasked}) {
    Fixture fresh(small_bert(0.2));
    const Score expected = fresh.pass(text->batch());
    const Score found = f.pass(text->batch());
    CHECK(found.loss == expected.loss);
    CHECK(found.count == expected.count);
    CHECK(std::equal(f.gradients.data(), f.gradients.data() + f.gradients.size(),
                     fresh.gradients.data()));
  }
  const RandomText longer(25, 3, k_words, {25});
  CHECK_THROWS_AS(f.pass(longer.batch()), UsageError);
}

TEST_CASE("a masked token's logits are what its loss is of") {
  Fixture f(small_bert());
  f.enlarge();
  RandomText text(20, 3, k_words, {20, 13});
  text.masked[2] = -1;
  const std::vector<float> logits = f.model->logits(text.batch(), f.owner);
  REQUIRE(logits.size() == 5 * k_words);
  double loss = 0;
  std::size_t row = 0;
  for (std::size_t slot = 0; slot < text.masked.size(); ++slot) {
    if (text.masked[slot] >= 0) {
      double sum = 0;
      for (std::size_t word = 0; word < k_words; ++word) {
        sum += std::exp(double{logits[row * k_words + word]});
      }
      loss += std::log(sum) -
              double{logits[row * k_words + static_cast<std::size_t>(text.targets[slot])]};
      ++row;
    }
  }
  CHECK(f.pass(text.batch()).loss == doctest::Approx(loss).epsilon(1e-5));
}

TEST_CASE("RoBERTa is BERT with names and positions of its own") {
  ModelOptions options = small_bert();
  options.name = "roberta";
  Fixture f(options);
  const TensorTable& tensors = f.model->tensors();
  const auto shape_of = [&](const std::string& name) {
    const auto it = std::find_if(tensors.tensors().begin(), tensors.tensors().end(),
                                 [&](const Tensor& tensor) { return tensor.name == name; });
    REQUIRE(it != tensors.tensors().end());
    return it->shape;
  };
  CHECK(shape_of("lm_head.bias") == std::vector<std::size_t>{k_words});
  CHECK(shape_of("roberta.embeddings.position_embeddings.weight") ==
        std::vector<std::size_t>{26, 32});
  CHECK(shape_of("roberta.encoder.layer.1.intermediate.dense.weight") ==
        std::vector<std::size_t>{48, 32});
}

TEST_CASE("a shape that no BERT has, and text of another vocabulary, are refused") {
  CpuDevice device;
  ModelOptions options = small_bert();
  options.transformer.heads = 3;
  CHECK_THROWS_WITH_AS(
      make_language_model(options, device),
      "--model=bert: --hidden=32 with --heads=3: --hidden must be a multiple of --heads",
      UsageError);
  options = small_bert();
  options.transformer.vocabulary = 0;
  CHECK_THROWS_AS(make_language_model(options, device), UsageError);
  Fixture f(small_bert());
  RandomText text(20, 3, k_words, {20});
  text.ids[3] = k_words;
  Score score;
  CHECK_THROWS_AS(f.model->evaluate(text.batch(), f.owner, &score), DataError);
  const RandomText longer(25, 3, k_words, {25});
  CHECK_THROWS_AS(f.model->evaluate(longer.batch(), f.owner, &score), UsageError);
}

TEST_CASE("GPT-2's gradients agree with finite differences, dropout included") {
  check_gradients(portable_kernels(), small_gpt2());
  check_gradients(best_kernels(), small_gpt2(0.3));
  check_gradients(portable_kernels(), odd(small_gpt2(0.3)));
}

TEST_CASE("a token of GPT-2 sees none behind it") {
  Fixture f(small_gpt2());
  f.enlarge();
  RandomText text = next_of(RandomText(12, 11, k_words, {12, 9}));
  const std::vector<float> before = f.model->logits(text.batch(), f.owner);
  text.ids[7] = (text.ids[7] + 1) % static_cast<std::int32_t>(k_words);
  const std::vector<float> after = f.model->logits(text.batch(), f.owner);
  REQUIRE(after.size() == (11 + 8) * k_words);
  const auto is_row = [&](std::size_t row) {
    return std::equal(before.begin() + static_cast<std::ptrdiff_t>(row * k_words),
                      before.begin() + static_cast<std::ptrdiff_t>((row + 1) * k_words),
                      after.begin() + static_cast<std::ptrdiff_t>(row * k_words));
  };
  for (std::size_t row = 0; row < 19; ++row) {
    CAPTURE(row);
    CHECK(is_row(row) == (row < 7 || row > 10));
  }
}

TEST_CASE("GPT-2's activations that are computed again give the same gradients") {
  ModelOptions options = small_gpt2(0.2);
  options.transformer.layers = 3;
  Fixture kept(options);
  options.transformer.recompute = true;
  Fixture again(options);
  const RandomText text = next_of(RandomText(12, 11, k_words, {12, 9}));
  CHECK(kept.pass(text.batch()).loss == again.pass(text.batch()).loss);
  CHECK(std::equal(kept.gradients.data(), kept.gradients.data() + kept.gradients.size(),
                   again.gradients.data()));
}

TEST_CASE("training teaches GPT-2 its next tokens") {
  Fixture f(small_gpt2());
  const RandomText text = next_of(RandomText(12, 11, k_words, {12, 12}));
  Optimizer adam({.learning_rate = 3e-3}, f.parameters.span(), f.gradients.span(), f.device);
  const double first = f.pass(text.batch()).loss;
  for (int step = 0; step < 60; ++step) {
    f.pass(text.batch());
    adam.begin_step();
    adam.update(0, f.parameters.size());
  }
  CHECK(f.pass(text.batch()).loss < first / 4);
}
