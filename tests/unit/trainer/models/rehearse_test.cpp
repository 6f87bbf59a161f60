#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/trainer/models/fixture.h"
#include "tests/unit/trainer/models/text.h"
#include "trainer/models/transformer.h"

using namespace trainer;

namespace {

struct Rehearsed {
  std::vector<std::pair<std::string, std::size_t>> told;
  std::vector<std::size_t> ahead;
};

Rehearsed rehearse(const Model& model, std::size_t rows, test::NotingOwner owner) {
  Rehearsed found;
  owner.told.clear();
  model.rehearse(rows, owner, [&](std::size_t unit) { found.ahead.push_back(unit); });
  found.told = owner.told;
  return found;
}

void check_images(const ModelOptions& options) {
  CAPTURE(options.name);
  test::Fixture f(best_kernels(), options);
  f.model->forward_backward(f.batch(), &test::k_one, false, f.owner, &f.score);
  const Rehearsed found = rehearse(*f.model, f.batch().rows, f.owner);
  CHECK(found.told == f.owner.told);
  CHECK(found.ahead.empty());
  // Several slices write all gradients before the last one finishes any.
  CHECK(rehearse(*f.model, 1000, f.owner).ahead.size() == f.model->units().size());
}

} // namespace

TEST_CASE("a rehearsal tells what a pass tells") {
  check_images({.hidden = {24, 40}});
  check_images({.name = "cnn", .height = 12, .width = 12});

  const test::RandomText text(8, 2, 50, {8, 5, 8});
  for (const auto& [name, recompute] : {std::pair("bert", false), std::pair("bert", true),
                                        std::pair("gpt2", false), std::pair("gpt2", true)}) {
    ModelOptions options{.name = name};
    options.transformer = {.layers = 3,
                           .hidden = 32,
                           .heads = 2,
                           .inner = 48,
                           .max_length = 8,
                           .vocabulary = 50,
                           .recompute = recompute};
    CpuDevice device;
    const auto model = make_language_model(options, device);
    const Buffer parameters(model->tensors().arena_size());
    const Buffer gradients(parameters.size());
    test::NotingOwner owner(model->units(), {parameters.span(), gradients.span()});
    model->initialize(1, parameters.span());
    Score score;
    model->forward_backward(text.batch(), &test::k_one, false, owner, &score);
    const Rehearsed found = rehearse(*model, 3, owner);
    CHECK(found.told == owner.told);
    CHECK(found.ahead == std::vector{model->units().size() - 1}); // The decoder's.
  }
}

TEST_CASE("the room that a model is told to make is all that a pass takes") {
  const test::RandomText text(16, 4, 50, {16, 16});
  ModelOptions options{.name = "bert"};
  options.transformer = {
      .layers = 2, .hidden = 32, .heads = 2, .inner = 48, .max_length = 16, .vocabulary = 50};
  for (const char* name : {"bert", "gpt2", "mlp", "cnn"}) {
    CAPTURE(name);
    options.name = name;
    CpuDevice device;
    const std::unique_ptr<Model> model = make_model(options, device);
    const Buffer parameters(model->tensors().arena_size());
    const Buffer gradients(parameters.size());
    const Buffer images(2 * options.height * options.width);
    Replicated owner(model->units(), {parameters.span(), gradients.span()});
    model->initialize(1, parameters.span());
    const std::vector<std::int32_t> labels(2);
    const Batch batch =
        options.is_of_text()
            ? text.batch()
            : Batch{.rows = 2}.with(field::images, images.span()).with(field::labels, labels);
    const BufferCount first;
    model->make_room(batch);
    if (options.is_of_text() || std::string(name) == "mlp") {
      CHECK(first.bytes() > 0);
    }
    const BufferCount more;
    Score score;
    model->forward_backward(batch, &test::k_one, false, owner, &score);
    CHECK(more.bytes() == 0);
  }
}
