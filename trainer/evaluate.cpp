#include "trainer/evaluate.h"

#include <algorithm>
#include <array>

#include "trainer/monitor/metrics.h"

namespace trainer {
namespace {
constexpr std::size_t k_sums = 16;
}

Score evaluate(Model& model, const Split& split, Device& device, std::size_t batch_size,
               Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  const std::size_t last = split.count * (rank + 1) / ranks;
  Buffer images(batch_size * split.features);
  Score total;
  for (std::size_t first = split.count * rank / ranks; first < last; first += batch_size) {
    const std::size_t rows = std::min(batch_size, last - first);
    const std::size_t values = rows * split.features;
    device.kernels().bytes_to_floats(device.stream(), values,
                                     split.images.data() + first * split.features, images.data());
    const Score score = model.evaluate(
        {rows, images.span().first(values), std::span(split.labels).subspan(first, rows)});
    total += score;
  }
  std::array<float, k_sums> sums{}; // Not registered: what is lives as long as the communicator.
  return sum_over_ranks(total, communicator, sums);
}

} // namespace trainer
