// What an optimizer updates, in files, for models whose states do not fit into memory (Rajbhandari
// et al. 2021, ZeRO-Infinity): rows of values, one for each moment and perhaps one for a GPU's
// parameters (a CPU's: optim/arena_file.h), each in a file of its own.
//
// They pass through memory in pieces, in ascending order and then again from the first. While the
// optimizer updates one piece, a thread reads the next and writes those before; so the first pieces
// of a step are read while its gradients are computed. The same thread reads parameters for those
// who compute with them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/device/stored_values.h"
#include "trainer/device/unlinked_file.h"

namespace trainer {

/// How the values of a row are cut.
struct Pieces {
  static constexpr std::size_t k_ahead = 2; ///< How many are read before they are used.

  std::vector<std::size_t> bounds; ///< Ascending, from 0 to the number of values.

  /// Equal ones.
  static Pieces of(std::size_t count);

  std::size_t count() const { return bounds.size() - 1; }
  std::size_t largest() const;
  std::size_t holder(std::size_t at) const; ///< The piece that has this value.
};

class StateFiles {
 public:
  static constexpr std::size_t k_piece = std::size_t{1} << 18; ///< Values, of Pieces::of().

  struct RowOptions {
    std::string folder;
    const char* what; ///< "the parameters", for messages.
  };

  /// Zeros, in unlinked files. `device` updates them. Throws UsageError naming the folder that has
  /// no room.
  StateFiles(Device& device, Pieces pieces, const std::vector<RowOptions>& rows);
  ~StateFiles();
  StateFiles(const StateFiles&) = delete;
  StateFiles& operator=(const StateFiles&) = delete;

  /// Memory of each row's values from `at` on, to the end of the piece, that the device can update
  /// on `stream` until the next call. Throws Error naming the folder if a piece could not be read
  /// or written.
  RowPointers use(std::size_t at, Stream& stream);
  std::size_t end_of_piece(std::size_t at) const { return pieces_.bounds[pieces_.holder(at) + 1]; }
  /// Writes back what has been updated. Throws as use().
  void flush();
  /// For others than the optimizer: its read() and write() after flush() and before use().
  ValueFile& row(std::size_t row) { return *rows_[row]; }

  /// Bytes of memory for the pieces of so many rows.
  static std::size_t memory_bytes(std::size_t rows, const Pieces& pieces);

 private:
  static constexpr std::size_t k_none = SIZE_MAX;

  class Row final : public ValueFile {
   public:
    Row(StateFiles& files, const RowOptions& options, std::size_t count);
    Ticket start_read(std::size_t at, std::span<float> to) override;
    void wait(Ticket ticket) override { files_.wait(ticket); }
    void read(std::size_t at, std::span<float> to) const override;
    void write(std::size_t at, std::span<const float> from) override;
    void write_back(std::size_t at, std::span<const float> from) const;

   private:
    StateFiles& files_;
    UnlinkedFile file_;
  };

  /// Jobs are carried out in order, so that a slot's memory needs no further lock: it is written
  /// back before another piece is read into it.
  struct Slot {
    std::size_t piece = k_none;
    std::size_t ticket = 0; ///< Of its last job.
  };
  using Job = std::function<void()>; ///< Throws Error.

  /// Those read ahead, the one in use, and the one being written.
  static constexpr std::size_t k_slots = Pieces::k_ahead + 2;

  float* memory(std::size_t slot, std::size_t row) const;
  std::size_t slot_of(std::size_t piece) const; ///< k_none: it is in none.
  void put_back();
  void move(std::size_t slot, std::shared_ptr<Event> updated);
  std::size_t add(Job job);
  void wait(std::size_t ticket);
  void work();

  Pieces pieces_;
  std::size_t largest_; ///< Of the pieces.
  std::vector<std::unique_ptr<Row>> rows_;
  Buffer memory_; ///< (slots, rows, the largest piece), pinned.
  std::vector<Slot> slots_;
  std::size_t current_ = k_none; ///< Slot of the piece being updated,
  Stream* updating_ = nullptr;   ///< on this stream.
  std::size_t added_ = 0;        ///< Jobs.

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::size_t done_ = 0;
  std::string error_; ///< What went wrong first; empty: nothing.
  bool ends_ = false;
  std::thread thread_;
};

} // namespace trainer
