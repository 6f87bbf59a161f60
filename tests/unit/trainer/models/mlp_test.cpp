#include "tests/unit/trainer/models/fixture.h"

#include <cmath>

using namespace trainer;
using namespace trainer::test;

namespace {

ModelOptions mlp(const std::vector<std::size_t>& hidden = {16}, std::size_t classes = 7) {
  return {"mlp", 4, 5, classes, hidden};
}

} // namespace

TEST_CASE("gradients agree with finite differences, whatever the layers' widths") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    check_gradients(*kernels, mlp({16}, 7));
    check_gradients(*kernels, mlp({19}, 7));
    check_gradients(*kernels, mlp({33, 18}, 7));
    check_gradients(*kernels, mlp({12}, 37));
    check_gradients(*kernels, mlp({}, 17));
  }
}

TEST_CASE("an MLP's gradients in bf16 are near those of float32") {
  check_gradients_in_bf16(mlp({33, 18}, 7));
}

TEST_CASE("a device without kernels of its own trains the MLP and the CNN that the CPU trains") {
  class Plain final : public CpuDevice {
   public:
    const CpuKernels* cpu_kernels() const override { return nullptr; }
  };
  ModelOptions cnn = mlp({19, 12});
  cnn.name = "cnn";
  for (const ModelOptions& options : {mlp({33, 18}), mlp({}, 17), cnn}) {
    Fixture own(best_kernels(), options);
    CAPTURE(own.model->describe());
    Plain device;
    const std::unique_ptr<Model> model = make_model(options, device);
    CHECK(model->describe() == own.model->describe());
    const Buffer parameters(model->tensors().arena_size());
    const Buffer gradients(parameters.size());
    NotingOwner owner(model->units(), {parameters.span(), gradients.span()});
    model->initialize(3, parameters.span());
    const std::vector<NamedTensor> weights =
        own.model->tensors().export_arena(own.parameters.span());
    const std::vector<NamedTensor> plain = model->tensors().export_arena(parameters.span());
    for (const bool accumulate : {false, true}) {
      Score score;
      own.score = {};
      own.model->forward_backward(own.batch(), &k_fifth, accumulate, own.owner, &own.score);
      model->forward_backward(own.batch(), &k_fifth, accumulate, owner, &score);
      CHECK(score.loss == doctest::Approx(own.score.loss).epsilon(1e-5));
      CHECK(score.correct == own.score.correct);
    }
    const std::vector<NamedTensor> expected =
        own.model->tensors().export_arena(own.gradients.span());
    const std::vector<NamedTensor> found = model->tensors().export_arena(gradients.span());
    REQUIRE(found.size() == expected.size());
    for (std::size_t t = 0; t < found.size(); ++t) {
      CAPTURE(found[t].name);
      CHECK(found[t].name == expected[t].name);
      CHECK(plain[t].values == weights[t].values);
      REQUIRE(found[t].values.size() == expected[t].values.size());
      for (std::size_t i = 0; i < found[t].values.size(); ++i) {
        CHECK(found[t].values[i] ==
              doctest::Approx(expected[t].values[i]).epsilon(1e-3).scale(0.1));
      }
    }
  }
}

TEST_CASE("gradients are reported final from the arena's start to its end") {
  Fixture f(portable_kernels(), mlp({48, 32}));
  f.owner.wanted_granularity = 1;
  f.model->forward_backward(f.batch(), &k_one, false, f.owner, &f.score);
  const std::vector<std::size_t> reports = f.owner.all("final");
  REQUIRE(!reports.empty());
  CHECK(std::is_sorted(reports.begin(), reports.end()));
  CHECK(reports.back() == f.model->tensors().arena_size());
  for (const ArenaRange& unit : f.model->units()) {
    CHECK(std::find(reports.begin(), reports.end(), unit.last) != reports.end());
  }
  CHECK(f.owner.all("need") == std::vector<std::size_t>{2, 1, 0});
  CHECK(f.owner.all("done") == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("two halves of a batch add up to the gradients of the whole") {
  Fixture f(best_kernels(), mlp({24, 16}));
  f.model->forward_backward(f.batch(), &k_one, false, f.owner, &f.score);
  const std::vector<float> whole(f.gradients.span().begin(), f.gradients.span().end());
  f.model->forward_backward(f.batch().slice(0, 2), &k_one, false, f.owner, &f.score);
  f.model->forward_backward(f.batch().slice(2, 9), &k_one, true, f.owner, &f.score);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(f.gradients.data()[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  }
}

TEST_CASE("what pads a layer stays zero through training") {
  Fixture f(best_kernels(), mlp({19}));
  f.train(20);
  double before = 0;
  for (const float value : f.parameters.span()) {
    before += double{value} * double{value};
  }
  double named = 0;
  for (const NamedTensor& tensor : f.model->tensors().export_arena(f.parameters.span())) {
    for (const float value : tensor.values) {
      named += double{value} * double{value};
    }
  }
  CHECK(named == doctest::Approx(before).epsilon(1e-12));
}

TEST_CASE("training lowers the loss") {
  Fixture f(best_kernels(), mlp());
  const double before = f.evaluate().loss;
  f.train(100);
  const Score after = f.evaluate();
  CHECK(after.loss < before / 10);
  CHECK(after.correct == 5);
}

TEST_CASE("tensors leave the arena by name and come back bit for bit") {
  Fixture f(portable_kernels(), mlp());
  const TensorTable& table = f.model->tensors();
  const auto tensors = table.export_arena(f.parameters.span());
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[1].name == "output.weight");
  CHECK(tensors[1].shape == std::vector<std::size_t>{7, 16});
  Buffer copy(f.parameters.size());
  table.import_arena(tensors, copy.span());
  CHECK(std::equal(copy.span().begin(), copy.span().end(), f.parameters.span().begin()));
}

TEST_CASE("an arena's first value that is no number is found by its tensor's name") {
  Fixture f(portable_kernels(), mlp());
  const TensorTable& table = f.model->tensors();
  CHECK(table.first_not_finite(f.parameters.span()).empty());
  f.parameters.data()[table[3].offset] = INFINITY; // Right behind another's.
  CHECK(table.first_not_finite(f.parameters.span()) == "hidden.weight");
  CHECK(table.suspect(f.parameters.span()) == "hidden.weight, which holds inf");
}
