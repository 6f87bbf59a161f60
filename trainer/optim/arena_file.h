// The file that a rank's own parts of a CPU's arena are in (strategy/shards.h). Its pages are
// mapped over theirs, so that they are read in place, and Device::discard() only takes them out of
// this process's memory. Change them by write(): the first write to each mapped page is a fault, in
// which ext4 goes through all blocks of the page's folio, perhaps 2 MB.
//
// The file is laid out as the arena is, with holes where others' parts are. A page with some of
// both is the file's: it has what was in the others' part last, which nobody reads once it is
// discarded.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/stored_values.h"
#include "trainer/device/unlinked_file.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class ArenaFile final : public ValueFile {
 public:
  /// `arena`: paged memory of a CPU, which outlives this. `parts`: ascending; zeros from now on.
  /// `what`: "the parameters". Throws UsageError naming the folder that has no room.
  ArenaFile(std::span<float> arena, const std::vector<ArenaRange>& parts, const std::string& folder,
            const char* what);

  /// `at` counts from the arena's begin, and `to` is there. What is read by wait() is in memory.
  Ticket start_read(std::size_t at, std::span<float> to) override;
  void wait(Ticket ticket) override;
  void read(std::size_t at, std::span<float> to) const override;
  void write(std::size_t at, std::span<const float> from) override;

 private:
  UnlinkedFile file_;
  std::map<Ticket, std::span<std::byte>> coming_; ///< Whole pages.
  Ticket asked_ = 0;                              ///< The last one's.
};

} // namespace trainer
