#include "trainer/evaluate.h"

#include <algorithm>
#include <array>

#include "trainer/data/feed.h"
#include "trainer/monitor/metrics.h"
#include "trainer/nn/outcomes.h"

namespace trainer {
namespace {
constexpr std::size_t k_sums = 16;
}

Score evaluate(Model& model, const Split& split, Device& device, std::size_t batch_size,
               Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  const std::size_t last = split.count * (rank + 1) / ranks;
  Feed feed(device, split.features);
  Outcomes outcomes(device);
  Score* const score = &outcomes.begin()->score;
  for (std::size_t first = split.count * rank / ranks; first < last; first += batch_size) {
    const std::size_t rows = std::min(batch_size, last - first);
    feed.begin(rows);
    feed.put(0, rows, split.images.data() + first * split.features, split.labels.data() + first);
    model.evaluate(feed.finish(), score);
  }
  outcomes.send(0);
  outcomes.wait();
  std::array<float, k_sums> sums{}; // Not registered: what is lives as long as the communicator.
  return sum_over_ranks(outcomes.take().outcome.score, communicator, sums);
}

} // namespace trainer
