// Checkpoints of a run: DIR/step-000001500.safetensors, the newest few kept.
//
// A checkpoint holds all that a run needs to continue bit for bit: parameters by name, the
// optimizer's moments as adam.m.NAME and adam.v.NAME, and in its metadata the step, the position in
// the sample stream, the seed and the number of training samples. It does not hold the number of
// ranks or ZeRO's stage: a run may continue with others. If each rank holds the whole replica, rank
// 0 saves it; if ranks share it, each saves what it owns to a file of its own (numbered_files.h).
// Any rank may load any part; the caller ensures that all ranks load the same checkpoint. A damaged
// or unfinished checkpoint is skipped for the one before it.
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

/// A run's progress: what a checkpoint holds besides the replica's arenas.
struct Progress {
  std::int64_t step = 0;
  std::uint64_t position = 0; ///< In the stream of samples.
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;      ///< Number of training samples.
  std::uint64_t global_batch = 0; ///< Samples per step.
  std::int64_t skipped = 0;       ///< Steps whose gradients overflowed.
  LossScale loss_scale = {};      ///< Used in 16 bits.
};
static_assert(sizeof(Progress) == 10 * sizeof(double),
              "it is broadcast, and has no unset bytes between");

/// The finished checkpoint of the highest step in `folder`; none if there is none, or no such
/// folder.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// Whether the checkpoint of that step is finished.
bool is_saved(const std::string& folder, std::int64_t step);

/// The newest one that is not damaged; calls `say` with the reason for each newer one it skips.
std::optional<std::string>
newest_whole_checkpoint(const std::string& folder,
                        const std::function<void(const std::string&)>& say);

constexpr std::size_t k_kept = 2;

/// Saves, while training goes on, and then removes all but the newest `keep` that are complete
/// (NumberedWriter::commit).
class CheckpointSaver {
 public:
  /// `copies`: save() copies what this rank saves, which takes as much memory of the host, and
  /// returns; else it writes the file first, and only flushes it afterwards.
  explicit CheckpointSaver(bool copies = true) : makes_copies_(copies) {}
  /// Finishes writing this rank's part, but waits only shortly for other ranks' parts.
  ~CheckpointSaver() { is_over_ = true; }
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective, for ranks that share a replica. Creates `folder` if needed and returns whether all
  /// ranks can write to it. If so, each rank saves its own part from then on; else rank 0 saves
  /// all.
  bool meet(const std::string& folder, Communicator& communicator);
  bool has_met() const { return writers_ != 0; }

  /// Starts to save after the previous save has finished, whose failure it throws. The replica
  /// outlives the saver.
  ///
  /// For a whole replica only rank 0 has to call it. For a shared replica all ranks call it. If
  /// meet() did not succeed, they send the replica to rank 0, which writes it bucket by bucket
  /// before this returns. On the CPU the copy is made while training continues: the replica must
  /// not change before wait_until_copied().
  void save(const std::string& folder, const Replica& replica, const Progress& progress,
            Communicator& communicator, std::size_t keep = k_kept);
  void wait_until_copied() const {
    if (copied_.valid()) {
      copied_.wait();
    }
  }
  /// Waits until the checkpoint is saved (on rank 0 all of it, elsewhere this rank's part), and
  /// frees the copies. Throws Error if it cannot be saved, and earlier checkpoints stay; PeerError
  /// if a peer was lost whose part is missing.
  void wait(Communicator& communicator);

 private:
  void finish(Communicator& communicator);

  bool makes_copies_;
  std::uint64_t writers_ = 0; ///< See RankPart; 0 until meet() has succeeded.
  bool is_joining_ = false;   ///< Waits for other ranks' parts.
  std::atomic<bool> is_over_ = false;
  std::vector<Buffer> copies_; ///< One per arena.
  std::future<void> copied_;
  std::future<void> saving_; ///< Destroyed, and so waited for, before the copies.
};

/// Reads the checkpoint that a run resumes from.
class CheckpointReader {
 public:
  /// Throws DataError naming the file if it is damaged, or a tensor is missing, unknown or has
  /// another shape; UsageError if its run had another seed or other data than `expected`. The
  /// replica outlives the reader.
  CheckpointReader(const std::string& path, const Replica& replica, const Progress& expected);

  const std::string& path() const { return file_.path(); }
  const Progress& progress() const { return progress_; }
  /// 1 for the parameters, and one for each of the optimizer's moments.
  std::size_t arenas() const { return prefixes_.size(); }
  /// Reads a part of an arena; arena 0 holds the parameters. Throws DataError.
  void read(std::size_t arena, const ArenaRange& part, std::span<float> to);

 private:
  CheckpointFile file_;
  const TensorTable& table_;
  std::vector<std::string> prefixes_;
  Progress progress_;
  struct {
    const CheckpointFile::Entry* stored = nullptr;
    std::vector<float> held; ///< In the arena's layout.
  } turned_;                 ///< The last tensor whose layout differs between arena and file.
};

/// Restores parameters and moments of a whole replica. Throws as CheckpointReader does.
Progress load_checkpoint(const std::string& path, Replica& replica, const Progress& expected);

} // namespace trainer
