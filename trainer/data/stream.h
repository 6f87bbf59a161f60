// Samples that arrive through FIFOs during training: one pass, in the order of arrival.
//
// A thread reads images and labels in parallel into a window of samples, and waits while the window
// is full, so that memory does not grow with the stream. The window holds k_window_bytes, and at
// least the current batch and k_batches_ahead more. Several replicas of one worker share it, each
// with its own rows of every batch; samples that all of them have passed make room.
//
// The images' IDX header says how many samples there are, before the first one arrives. Bytes after
// the last sample are not read. A stream that ends early is an error, which its rank reports to its
// peers.
//
// If nobody writes to a FIFO, a notice names it after k_notice_seconds, and the reader goes on
// waiting. But if the window of the other FIFO is full meanwhile, one program may be writing both,
// one after the other, and wait as well: after k_deadlock_seconds that is an error.
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
  static constexpr double k_deadlock_seconds = 60;
  static constexpr std::size_t k_window_bytes = std::size_t{32} << 20;

  /// Waits for the images' header; one of the files may be an ordinary one. Throws DataError as
  /// read_idx() does, and while samples arrive as check_label() does. The last two are for tests.
  SampleStream(const std::string& images, const std::string& labels, std::size_t classes,
               double deadlock_seconds = k_deadlock_seconds,
               std::size_t window_bytes = k_window_bytes);
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
  /// Calls `take` with each of `count` samples from number `first` on, numbered from 0. The reader
  /// does not ask for these or earlier samples again. Waits for them, and calls `while_waiting` now
  /// and then. Throws DataError.
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
    std::vector<std::uint8_t> header; ///< The bytes that have arrived.
    std::uint64_t bytes = 0;          ///< Of values that have arrived.
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
  double deadlock_seconds_;
  std::size_t window_bytes_;
  std::size_t count_ = 0;
  std::size_t height_ = 0;
  std::size_t width_ = 0;
  std::size_t window_ = 0;
  Fd wake_; ///< Wakes the thread.
  Deadline notice_;

  std::mutex mutex_; ///< Guards the rest.
  std::condition_variable came_;
  std::vector<std::uint64_t> behind_; ///< Per reader: samples that it has taken or passed.
  std::uint64_t ready_ = 0;           ///< Samples that have arrived whole.
  std::exception_ptr failure_;
  bool stopped_ = false;
  std::thread thread_;
};

} // namespace trainer
