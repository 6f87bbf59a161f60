// Checkpoints of a run: DIR/step-000001500.safetensors, the newest two kept.
//
// A checkpoint holds all that continuing bit for bit takes: parameters by name, the optimizer's
// moments as adam.m.NAME and adam.v.NAME, and in its metadata the step, the position in the sample
// stream, the seed and the number of training samples. The number of ranks is not in it: any may
// continue. Rank 0 saves and loads; broadcasting what it loaded is the caller's part. What is
// damaged or was not finished (numbered_files.h) is passed over for the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/checkpoint/numbered_files.h"
#include "trainer/replica.h"

namespace trainer {

/// Where a run stands, beside the replica's arenas.
struct Progress {
  std::int64_t step = 0;
  std::uint64_t position = 0; ///< In the stream of samples.
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;      ///< Of the training data.
  std::uint64_t global_batch = 0; ///< Samples that its steps take, as it is now.
};
static_assert(std::has_unique_object_representations_v<Progress>,
              "it is broadcast, and has no unset bytes between");

/// The checkpoint of the highest step in `folder` that was finished; none where it has none or does
/// not exist.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// The same of those that are whole; `say` is told why a newer one is not used.
std::optional<std::string>
newest_whole_checkpoint(const std::string& folder,
                        const std::function<void(const std::string&)>& say);

/// Saves and then removes all but the newest two. Throws Error; what was there before stays.
void save_checkpoint(const std::string& folder, const Replica& replica, const Progress& progress);

/// Restores replica and optimizer. Throws DataError naming the file, and UsageError where it is of
/// a run with another seed or other data than `expected` says.
Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected);

} // namespace trainer
