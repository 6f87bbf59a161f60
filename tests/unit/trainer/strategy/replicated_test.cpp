#include "trainer/strategy/replicated.h"

#include <doctest/doctest.h>

#include <vector>

using namespace trainer;

TEST_CASE("a unit is rounded when it is first needed after its parameters have changed") {
  std::vector<float> parameters(48, 1 + 0x1p-12F); // What bf16 has no place for.
  std::vector<float> gradients(48);
  std::vector<float> rounded(48);
  const std::vector<ArenaRange> units = {{0, 16}, {16, 48}};
  Replicated owner(units, {parameters, gradients, Precision::bf16, rounded});
  const UnitMemory second = owner.need(1);
  CHECK(second.weights == rounded.data() + 16);
  CHECK(second.gradients == gradients.data() + 16);
  CHECK(second.weights[0] == 1);
  CHECK(rounded[0] == 0); // Nobody has needed it.
  parameters.assign(48, 3);
  CHECK(owner.need(1).weights[31] == 1);
  owner.change();
  CHECK(owner.need(1).weights[31] == 3);
}

TEST_CASE("an owner for evaluation alone gives no gradients, and float32 as it is") {
  std::vector<float> parameters(16, 1 + 0x1p-12F);
  const std::vector<ArenaRange> units = {{0, 16}};
  Replicated owner(units, {parameters});
  CHECK(owner.need(0).weights == parameters.data());
  CHECK(owner.need(0).gradients == nullptr);
}
