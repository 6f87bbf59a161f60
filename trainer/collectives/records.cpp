#include "trainer/collectives/records.h"

#include "trainer/collectives/collective.h"

namespace trainer {

std::vector<std::byte> all_gather_bytes(Communicator& communicator, std::span<const std::byte> mine,
                                        std::string_view name) {
  // Padded to what makes each rank's record its chunk, whatever the number of ranks.
  const std::size_t padded = Chunks(mine.size(), 1).length();
  std::vector<std::byte> all(static_cast<std::size_t>(communicator.world_size()) * padded);
  std::memcpy(all.data() + static_cast<std::size_t>(communicator.rank()) * padded, mine.data(),
              mine.size());
  communicator.wait(communicator.start_all_gather(all, name));
  return all;
}

} // namespace trainer
