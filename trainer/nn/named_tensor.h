#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trainer {

/// A tensor as others store it: row-major float32, weights as [outputs, inputs].
struct NamedTensor {
  std::string name; ///< "hidden.weight"
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

} // namespace trainer
