// Checkpoints of a run: DIR/step-000001500.safetensors, the newest few kept.
//
// A checkpoint holds all that continuing bit for bit takes: parameters by name, the optimizer's
// moments as adam.m.NAME and adam.v.NAME, and in its metadata the step, the position in the sample
// stream, the seed and the number of training samples. The number of ranks and ZeRO's stage are not
// in it: any may continue. A replica that each rank has all of is saved by rank 0, one that ranks
// share by all of them, each what it owns, in files of their own (numbered_files.h). Any rank may
// load any part of it; that all have the same is the caller's to see to. What is damaged or was not
// finished is passed over for the one before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_file.h"
#include "trainer/checkpoint/numbered_files.h"
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

/// Saves, while training goes on, and then removes all but the newest `keep` that are complete
/// (NumberedWriter::commit).
class CheckpointSaver {
 public:
  /// `copies`: what this rank saves of a replica that ranks share, which takes as much memory of
  /// its host; else it is written before save() returns, and the disk alone left for after that.
  explicit CheckpointSaver(bool copies = true) : makes_copies_(copies) {}
  /// What this rank writes is written to its end; others' parts are hardly waited for any more.
  ~CheckpointSaver() { is_over_ = true; }
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective, of ranks that share a replica: whether all of them can write to `folder`, which is
  /// made if need be. From then on each saves its own part; else, and until then, rank 0 all.
  bool meet(const std::string& folder, Communicator& communicator);
  bool has_met() const { return writers_ != 0; }

  /// Once the one before is saved, whose failure it throws. The replica outlives the saver.
  ///
  /// Of a whole replica rank 0 alone has to call it, and a copy is saved; of one that is shared all
  /// ranks have to. Where these have not met, it is sent to rank 0, which writes it bucket by
  /// bucket before this returns. On the host the copy is made while training continues: the replica
  /// must not change before wait_until_copied().
  void save(const std::string& folder, const Replica& replica, const Progress& progress,
            Communicator& communicator, std::size_t keep = k_kept);
  void wait_until_copied() const {
    if (copied_.valid()) {
      copied_.wait();
    }
  }
  /// Until it is saved: by rank 0 all of it, by another its own part. Gives copies' memory back.
  /// Throws Error; what was there before stays; and PeerError where a peer is gone whose part is
  /// missing.
  void wait(Communicator& communicator);

 private:
  void finish(Communicator& communicator);

  bool makes_copies_;
  std::uint64_t writers_ = 0; ///< Their number, once they have met; see RankPart.
  bool is_joining_ = false;   ///< Waits for others' parts.
  std::atomic<bool> is_over_ = false;
  std::vector<Buffer> copies_; ///< An arena's each.
  std::future<void> copied_;
  std::future<void> saving_; ///< Waited for at the end, before the copies go.
};

/// A checkpoint that a run goes on from.
class CheckpointReader {
 public:
  /// Throws DataError naming the file, also where a tensor is missing or has another shape, and
  /// UsageError where it is of a run with another seed or other data than `expected` says. The
  /// replica outlives it.
  CheckpointReader(const std::string& path, const Replica& replica, const Progress& expected);

  const std::string& path() const { return file_.path(); }
  const Progress& progress() const { return progress_; }
  /// The parameters' and, from 1 on, each moment's.
  std::size_t arenas() const { return prefixes_.size(); }
  /// A part of an arena. Throws DataError.
  void read(std::size_t arena, const ArenaRange& part, std::span<float> to);

 private:
  CheckpointFile file_;
  const TensorTable& table_;
  std::vector<std::string> prefixes_;
  Progress progress_;
  struct {
    const CheckpointFile::Entry* stored = nullptr;
    std::vector<float> held; ///< As in the arena.
  } turned_;                 ///< The last tensor that lies there otherwise than in the file.
};

/// Restores parameters and moments of a whole replica. Throws what CheckpointReader does.
Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected);

} // namespace trainer
