#include "trainer/collectives/agreement.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trainer/collectives/records.h"
#include "trainer/errors.h"

namespace trainer {

void throw_on_all_ranks(Communicator& communicator, const std::string& text) {
  try {
    communicator.barrier("disagreement");
  } catch (const PeerError&) {
    // Others were faster through the barrier.
  }
  throw UsageError(text);
}

void check_equal_replicas(int replicas, Communicator& between) {
  const std::vector<int> counts = all_gather(between, replicas, "devices");
  const auto other = std::find_if(counts.begin(), counts.end(),
                                  [&](int count) { return count != counts.front(); });
  if (other != counts.end()) {
    throw_on_all_ranks(
        between, fmt::format("--devices: {} has {}, {} has {}; give every worker the same number",
                             between.name(0), counts.front(),
                             between.name(static_cast<int>(other - counts.begin())), *other));
  }
}

std::string why_no_gpus(bool has_gpu, Communicator& between) {
  const std::vector<int> have = all_gather(between, has_gpu ? 1 : 0, "GPUs");
  const auto without = std::find(have.begin(), have.end(), 0);
  if (without == have.end() || std::find(have.begin(), have.end(), 1) == have.end()) {
    return "";
  }
  return fmt::format("{} has none", between.name(static_cast<int>(without - have.begin())));
}

} // namespace trainer
