// Checkpoints of a run: DIR/step-000001500.safetensors, the newest few kept.
//
// A checkpoint holds all that continuing bit for bit takes: parameters by name, the optimizer's
// moments as adam.m.NAME and adam.v.NAME, and in its metadata the step, the position in the sample
// stream, the seed and the number of training samples. The number of ranks and ZeRO's stage are not
// in it: any may continue. Rank 0 saves and loads; broadcasting what it loaded is the caller's
// part. What is damaged or was not finished (numbered_files.h) is passed over for the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/numbered_files.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/run/replica.h"

namespace trainer {

/// Where a run stands, beside the replica's arenas.
struct Progress {
  std::int64_t step = 0;
  std::uint64_t position = 0; ///< In the stream of samples.
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;      ///< Of the training data.
  std::uint64_t global_batch = 0; ///< Samples that its steps take, as it is now.
  std::int64_t skipped = 0;       ///< Steps, for their gradients overflowed.
  LossScale loss_scale = {};      ///< Of a run in 16 bits.
};
static_assert(sizeof(Progress) == 10 * sizeof(double),
              "it is broadcast, and has no unset bytes between");

/// The checkpoint of the highest step in `folder` that was finished; none where it has none or does
/// not exist.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// The same of those that are whole; `say` is told why a newer one is not used.
std::optional<std::string>
newest_whole_checkpoint(const std::string& folder,
                        const std::function<void(const std::string&)>& say);

constexpr std::size_t k_kept = 2;

/// Rank 0 saves, while training goes on, and then removes all but the newest `keep` that are
/// complete (NumberedWriter::commit).
class CheckpointSaver {
 public:
  /// Once the one before is saved, whose failure it throws. The replica outlives the saver.
  ///
  /// Of a whole replica rank 0 alone has to call it. A copy is saved, which takes as much memory of
  /// its host as the checkpoint is large.
  /// Ranks that share the replica share it because it is large: a collective, in which rank 0
  /// writes bucket by bucket what it is sent. What is left for the background is what takes long,
  /// the disk.
  void save(const std::string& folder, const Replica& replica, const Progress& progress,
            Communicator& communicator, std::size_t keep = k_kept);
  /// Until it is saved. Throws Error; what was there before stays.
  void wait();

 private:
  std::vector<Buffer> copies_;
  std::future<void> saving_; ///< Waited for at the end, before the copies go.
};

/// A checkpoint that a run goes on from.
class CheckpointReader {
 public:
  /// Throws DataError naming the file, also where a tensor is missing or has another shape, and
  /// UsageError where it is of a run with another seed or other data than `expected` says. The
  /// replica outlives it.
  CheckpointReader(const std::string& path, const Replica& replica, const Progress& expected);

  const Progress& progress() const { return progress_; }
  /// The parameters' and, from 1 on, each moment's.
  std::size_t arenas() const { return prefixes_.size(); }
  /// A part of an arena. Throws DataError.
  void read(std::size_t arena, const ArenaRange& part, std::span<float> to);

 private:
  SafeTensorsFile file_;
  const TensorTable& table_;
  std::vector<std::string> prefixes_;
  Progress progress_;
  struct {
    const StoredTensor* stored = nullptr;
    std::vector<float> held; ///< As in the arena.
  } panels_;                 ///< The last tensor that lies there in panels.
};

/// Restores parameters and moments of a whole replica. Throws what CheckpointReader does.
Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected);

} // namespace trainer
