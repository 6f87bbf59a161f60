// Samples that come through FIFOs while they are trained on: one pass, in the order they come.
//
// A thread reads images and labels, side by side, into a window of samples, and is held back where
// the window is full: memory is the window's, however long the stream. The window holds
// k_window_bytes, and at least the batch that is being taken and k_batches_ahead more. Several
// replicas of one worker share it, each with rows of its own of every batch; what all of them have
// behind them makes room.
//
// How many samples there are is known from the images' IDX header, before the first of them has
// come. What comes after so many is not read. A stream that ends before is an error, for the peers
// to hear of from the rank that has it.
//
// A FIFO that nobody writes is named after k_notice_seconds, and waited for, but where the other of
// the two has filled its window meanwhile: that may be a writer of one after the other, who waits
// as well. After k_patience_seconds of that it is an error.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/job/socket.h"

namespace trainer {

class SampleStream {
 public:
  static constexpr std::size_t k_batches_ahead = 4;
  static constexpr double k_notice_seconds = 5;
  static constexpr double k_patience_seconds = 60;
  static constexpr std::size_t k_window_bytes = std::size_t{32} << 20;

  /// Waits for the images' header; one of the files may be an ordinary one. Throws DataError as
  /// read_idx() and, when they come, check_label() do. The last two are for tests.
  SampleStream(const std::string& images, const std::string& labels, std::size_t classes,
               double patience = k_patience_seconds, std::size_t window_bytes = k_window_bytes);
  ~SampleStream();
  SampleStream(const SampleStream&) = delete;
  SampleStream& operator=(const SampleStream&) = delete;

  std::size_t count() const { return count_; }
  std::size_t height() const { return height_; }
  std::size_t width() const { return width_; }

  /// `readers` will take `batch` samples together at a time, in lockstep. The first call counts.
  void begin(std::size_t readers, std::size_t batch);

  using Take =
      std::function<void(std::size_t number, const std::uint8_t* image, std::int32_t label)>;
  /// `count` samples from number `first` on, which `take` is given one by one, from 0 on. The
  /// reader asks for none before their end again. Waits for them, and calls `while_waiting` now and
  /// then. Throws DataError.
  void read(std::size_t reader, std::uint64_t first, std::size_t count,
            const std::function<void()>& while_waiting, const Take& take);

  /// Samples that the window holds; 0 before begin().
  std::size_t window() const { return window_; }

 private:
  /// One of the two files.
  struct Part {
    std::string path;
    std::size_t dimensions = 1;
    std::size_t size = 1; ///< Bytes a sample; the labels', once their header has come.
    Fd file;
    bool is_fifo = false;
    std::vector<std::uint8_t> header; ///< What has come of it.
    std::uint64_t bytes = 0;          ///< Of values that have come.
    std::vector<std::uint8_t> ring;   ///< (window, size)
  };

  static void open(Part& part);
  static bool has_header(const Part& part);
  static bool receive_header(Part& part);
  void note_waiting(Part& part);
  void read_label_header();
  void run();
  void fill();
  std::size_t room(const Part& part, std::uint64_t low) const;
  bool receive(Part& part, std::size_t room);
  void check_labels(std::uint64_t from, std::uint64_t to) const;
  [[noreturn]] void fail_one_by_one(const Part& full, const Part& empty) const;
  std::uint64_t whole() const;

  std::array<Part, 2> parts_; ///< Images and labels.
  std::size_t classes_;
  double patience_;
  std::size_t window_bytes_;
  std::size_t count_ = 0;
  std::size_t height_ = 0;
  std::size_t width_ = 0;
  std::size_t window_ = 0;
  Fd wake_; ///< The thread.
  Deadline notice_;

  std::mutex mutex_; ///< Guards the rest.
  std::condition_variable came_;
  std::vector<std::uint64_t> behind_; ///< Each reader's: samples that it has taken or passed.
  std::uint64_t ready_ = 0;           ///< Samples that have come whole.
  std::exception_ptr failure_;
  bool stopped_ = false;
  std::thread thread_;
};

} // namespace trainer
