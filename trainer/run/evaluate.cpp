#include "trainer/run/evaluate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "trainer/data/feed.h"
#include "trainer/monitor/metrics.h"
#include "trainer/nn/outcomes.h"

namespace trainer {

Score evaluate(Model& model, ParameterOwner& owner, const Split& split, Device& device,
               std::size_t batch_size, Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  const std::size_t begin = split.count * rank / ranks;
  const std::size_t last = split.count * (rank + 1) / ranks;
  const std::size_t most_rows = (split.count + ranks - 1) / ranks;
  std::optional<Feed> feed;
  if (split.count > 0) {
    feed.emplace(device, *split.source);
  }
  std::vector<std::uint64_t> samples;
  const auto batch_of = [&](std::size_t first, std::size_t rows) {
    samples.resize(rows);
    std::iota(samples.begin(), samples.end(), first);
    return feed->read({.samples = samples, .position = first}); // The same mask at each evaluation.
  };
  Outcomes outcomes(device);
  Score* const score = &outcomes.begin()->score;
  for (std::size_t done = 0; done < most_rows; done += batch_size) {
    owner.begin_pass();
    if (const std::size_t first = begin + done; first < last) {
      model.evaluate(batch_of(first, std::min(batch_size, last - first)), owner, score);
    } else if (owner.is_shared()) { // Take part in the collectives of the other ranks.
      Score unused;
      model.evaluate(batch_of(0, 1), owner, &unused);
    }
  }
  outcomes.send(0, device.stream().record());
  outcomes.wait();
  return sum_over_ranks(outcomes.take().score, communicator);
}

} // namespace trainer
