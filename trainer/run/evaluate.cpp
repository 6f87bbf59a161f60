#include "trainer/run/evaluate.h"

#include <algorithm>

#include "trainer/data/feed.h"
#include "trainer/monitor/metrics.h"
#include "trainer/nn/outcomes.h"

namespace trainer {
namespace {

Batch batch_of(const Split& split, std::size_t first, std::size_t rows, Feed& feed) {
  feed.begin(rows);
  if (split.text) {
    for (std::size_t row = 0; row < rows; ++row) { // Masked alike each time.
      feed.put_text(row, first + row, 0, first + row);
    }
  } else {
    feed.put(0, rows, split.images.data() + first * split.features, split.labels.data() + first);
  }
  return feed.finish();
}

} // namespace

Score evaluate(Model& model, ParameterOwner& owner, const Split& split, Device& device,
               std::size_t batch_size, Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  const std::size_t begin = split.count * rank / ranks;
  const std::size_t last = split.count * (rank + 1) / ranks;
  const std::size_t most_rows = (split.count + ranks - 1) / ranks;
  Feed feed(device, split.features, split.text.get());
  Outcomes outcomes(device);
  Score* const score = &outcomes.begin()->score;
  for (std::size_t done = 0; done < most_rows; done += batch_size) {
    owner.begin_pass();
    if (const std::size_t first = begin + done; first < last) {
      model.evaluate(batch_of(split, first, std::min(batch_size, last - first), feed), owner,
                     score);
    } else if (owner.is_shared()) { // For the others' sake.
      Score unused;
      model.evaluate(batch_of(split, 0, 1, feed), owner, &unused);
    }
  }
  outcomes.send(0);
  outcomes.wait();
  return sum_over_ranks(outcomes.take().score, communicator);
}

} // namespace trainer
