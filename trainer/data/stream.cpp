#include "trainer/data/stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/data/idx.h"
#include "trainer/data/labels.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr double k_read_slice_seconds = 0.1;
constexpr std::array<std::uint8_t, 2> k_gzip = {0x1f, 0x8b};
constexpr std::size_t k_images = 0;
constexpr std::size_t k_labels = 1;

[[noreturn]] void fail_read(const std::string& path) {
  throw DataError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
}

bool read_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

} // namespace

SampleStream::SampleStream(const std::string& images, const std::string& labels,
                           std::size_t classes, double deadlock_seconds, std::size_t window_bytes)
    : classes_(classes), deadlock_seconds_(deadlock_seconds), window_bytes_(window_bytes),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  parts_[k_images].path = images;
  parts_[k_images].dimensions = 3;
  parts_[k_labels].path = labels;
  for (Part& part : parts_) {
    open(part);
  }
  Part& part = parts_[k_images];
  notice_ = after_seconds(k_notice_seconds);
  while (!has_header(part)) {
    pollfd polled = {part.file.get(), POLLIN, 0};
    poll(&polled, 1, poll_timeout(after_seconds(k_read_slice_seconds)));
    if (polled.revents == 0 || !receive_header(part)) {
      note_waiting(part);
    }
  }
  const auto pixels = parse_idx_header(part.path, part.header, part.dimensions).dimensions;
  count_ = pixels[0];
  height_ = pixels[1];
  width_ = pixels[2];
  part.size = height_ * width_;
}

SampleStream::~SampleStream() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) {
    thread_.join();
  }
}

/// Opens without waiting for a writer: reads return nothing until one connects.
void SampleStream::open(Part& part) {
  part.file = Fd(::open(part.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!part.file) {
    throw DataError(fmt::format("{}: cannot open: {}", part.path, std::strerror(errno)));
  }
  struct stat status {};
  part.is_fifo = fstat(part.file.get(), &status) == 0 && S_ISFIFO(status.st_mode);
}

bool SampleStream::has_header(const Part& part) {
  return part.header.size() == idx_header_size(part.dimensions);
}

/// Returns false if there was nothing to read.
bool SampleStream::receive_header(Part& part) {
  const std::size_t have = part.header.size();
  const std::size_t size = idx_header_size(part.dimensions);
  part.header.resize(size);
  const ssize_t got = ::read(part.file.get(), part.header.data() + have, size - have);
  part.header.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && !read_again(errno)) {
    fail_read(part.path);
  }
  if (part.header.size() > 1 && std::equal(k_gzip.begin(), k_gzip.end(), part.header.begin())) {
    throw DataError(fmt::format("{}: gzip; a stream is plain IDX, and one that is named {}.gz is "
                                "read whole",
                                part.path, part.path));
  }
  if (got == 0) {
    parse_idx_header(part.path, part.header,
                     part.dimensions); // Throws, because the header is truncated.
  }
  return got > 0;
}

void SampleStream::note_waiting(Part& part) {
  if (part.header.empty() && Clock::now() >= notice_) {
    fmt::print(stderr, "dtrain-trainer: {}: waits for its writer\n", part.path);
    notice_ = Deadline::max();
  }
}

void SampleStream::read_label_header() {
  Part& part = parts_[k_labels];
  const IdxHeader header = parse_idx_header(part.path, part.header, part.dimensions);
  if (const std::uint32_t count = header.dimensions[0]; count != count_) {
    throw DataError(fmt::format("{}: {} labels for the {} images of {}", part.path, count, count_,
                                parts_[k_images].path));
  }
  part.size = header.value_bytes;
  part.ring.resize(window_ * part.size);
}

void SampleStream::begin(std::size_t readers, std::size_t batch) {
  const std::lock_guard lock(mutex_);
  if (window_ != 0) {
    return;
  }
  // One reader may be a batch behind another.
  window_ = std::min(
      count_, std::max(batch * (2 + k_batches_ahead), window_bytes_ / (parts_[k_images].size + 1)));
  behind_.assign(readers, 0);
  parts_[k_images].ring.resize(window_ * parts_[k_images].size);
  thread_ = std::thread([this] { run(); });
}

void SampleStream::read(std::size_t reader, std::uint64_t first, std::size_t count,
                        const std::function<void()>& while_waiting, const Take& take) {
  const std::uint64_t end = first + count;
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return ready_ >= end || failure_; };
  while (!came_.wait_for(lock, std::chrono::duration<double>(k_read_slice_seconds), has_come)) {
    lock.unlock();
    while_waiting();
    lock.lock();
  }
  if (ready_ < end) {
    std::rethrow_exception(failure_);
  }
  lock.unlock(); // The thread never writes where a reader has yet to read.
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = (first + i) % window_;
    take(i, parts_[k_images].ring.data() + place * parts_[k_images].size,
         idx_value(parts_[k_labels].ring.data(), parts_[k_labels].size, place));
  }
  lock.lock();
  behind_[reader] = std::max(behind_[reader], end);
  lock.unlock();
  eventfd_write(wake_.get(), 1);
}

void SampleStream::run() {
  try {
    fill();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  came_.notify_all();
}

std::uint64_t SampleStream::whole() const {
  return std::min(parts_[k_images].bytes / parts_[k_images].size,
                  parts_[k_labels].bytes / parts_[k_labels].size);
}

/// Number of bytes that may be read now, of the header or of one contiguous piece of the ring.
std::size_t SampleStream::room(const Part& part, std::uint64_t low) const {
  if (!has_header(part)) {
    return idx_header_size(part.dimensions) - part.header.size();
  }
  const std::uint64_t end = std::min<std::uint64_t>(count_, low + window_) * part.size;
  const std::size_t at = part.bytes % part.ring.size();
  return static_cast<std::size_t>(std::min<std::uint64_t>(end - part.bytes, part.ring.size() - at));
}

/// Returns false if there was nothing to read.
bool SampleStream::receive(Part& part, std::size_t room) {
  if (!has_header(part)) {
    const bool has_come = receive_header(part);
    if (has_header(part)) {
      read_label_header();
    }
    return has_come;
  }
  const std::size_t at = part.bytes % part.ring.size();
  const ssize_t got = ::read(part.file.get(), part.ring.data() + at, room);
  if (got < 0) {
    if (read_again(errno)) {
      return false;
    }
    fail_read(part.path);
  }
  if (got == 0) {
    throw DataError(fmt::format("{}: truncated: {} of {} bytes of values have come", part.path,
                                part.bytes, count_ * part.size));
  }
  part.bytes += static_cast<std::uint64_t>(got);
  return true;
}

void SampleStream::check_labels(std::uint64_t from, std::uint64_t to) const {
  const Part& part = parts_[k_labels];
  for (std::uint64_t i = from; i < to; ++i) {
    check_label(part.path, idx_value(part.ring.data(), part.size, i % window_), i, classes_);
  }
}

void SampleStream::fail_one_by_one(const Part& full, const Part& empty) const {
  throw DataError(fmt::format(
      "{}: nothing has come for {:g} s, while {} has filled its window of {} samples; write images "
      "and labels side by side, or train for more epochs than one, which reads them whole first",
      empty.path, deadlock_seconds_, full.path, window_));
}

void SampleStream::fill() {
  Deadline stalled = after_seconds(deadlock_seconds_);
  notice_ = after_seconds(k_notice_seconds);
  for (;;) {
    std::uint64_t low = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) {
        return;
      }
      low = *std::min_element(behind_.begin(), behind_.end());
    }
    std::array<pollfd, 3> polled{};
    std::array<std::size_t, 2> rooms{};
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      rooms[p] = room(parts_[p], low);
      polled[p] = {rooms[p] > 0 ? parts_[p].file.get() : -1, POLLIN, 0};
    }
    if (whole() == count_) {
      return;
    }
    polled[2] = {wake_.get(), POLLIN, 0};
    poll(polled.data(), polled.size(), poll_timeout(after_seconds(k_read_slice_seconds)));
    if (polled[2].revents != 0) {
      eventfd_t wakes = 0;
      eventfd_read(wake_.get(), &wakes);
    }
    const std::uint64_t before = whole();
    bool has_come = false;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      has_come = (polled[p].revents != 0 && receive(parts_[p], rooms[p])) || has_come;
    }
    if (whole() > before) {
      check_labels(before, whole());
      {
        const std::lock_guard lock(mutex_);
        ready_ = whole();
      }
      came_.notify_all();
    }
    note_waiting(parts_[k_labels]);
    // Only a FIFO that waits for the other one stalls, not one that waits for training.
    const Part& full = parts_[rooms[k_images] == 0 ? k_images : k_labels];
    const Part& other = parts_[rooms[k_images] == 0 ? k_labels : k_images];
    const bool is_held = full.is_fifo && room(full, low) == 0 && full.bytes < count_ * full.size;
    if (has_come || !is_held || whole() > low) {
      stalled = after_seconds(deadlock_seconds_);
    } else if (Clock::now() >= stalled) {
      fail_one_by_one(full, other);
    }
  }
}

} // namespace trainer
