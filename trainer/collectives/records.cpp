#include "trainer/collectives/records.h"

#include "trainer/collectives/collective.h"

namespace trainer {

std::vector<std::byte> all_gather_bytes(Communicator& communicator, std::span<const std::byte> mine,
                                        std::string_view name) {
  // Padded to what makes each rank's record its chunk, whatever the number of ranks.
  const std::size_t padded = Chunks((mine.size() + sizeof(float) - 1) / sizeof(float), 1).length;
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  std::vector<std::byte> all(ranks * padded * sizeof(float));
  std::vector<float> buffer(ranks * padded);
  float* const own = buffer.data() + static_cast<std::size_t>(communicator.rank()) * padded;
  std::memcpy(own, mine.data(), mine.size());
  communicator.wait(communicator.start(Collective::Kind::all_gather, buffer, name));
  std::memcpy(all.data(), buffer.data(), all.size());
  return all;
}

} // namespace trainer
