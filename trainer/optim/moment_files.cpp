#include "trainer/optim/moment_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trainer/errors.h"

namespace trainer {

MomentFiles::MomentFiles(Device& device, std::size_t moments, std::size_t count,
                         const std::string& folder)
    : device_(device), moments_(moments), count_(count), folder_(folder),
      file_(folder, std::max<std::size_t>(moments * count, 1) * sizeof(float)),
      mapped_(static_cast<float*>(file_.map())),
      memory_(device.allocate_pinned(memory_bytes(moments, count) / sizeof(float), DType::f32)),
      thread_([this] { work(); }) {}

MomentFiles::~MomentFiles() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  munmap(mapped_, std::max<std::size_t>(moments_ * count_, 1) * sizeof(float));
}

std::size_t MomentFiles::memory_bytes(std::size_t moments, std::size_t count) {
  return k_slots * moments * std::min(count, k_piece) * sizeof(float);
}

float* MomentFiles::memory(std::size_t slot, std::size_t moment) const {
  return memory_.data() + (slot * moments_ + moment) * std::min(count_, k_piece);
}

std::size_t MomentFiles::slot_of(std::size_t piece) const {
  const auto* const found = std::find_if(slots_.begin(), slots_.end(),
                                         [&](const Slot& slot) { return slot.piece == piece; });
  return found == slots_.end() ? k_none : static_cast<std::size_t>(found - slots_.begin());
}

std::array<float*, MomentFiles::k_most_moments> MomentFiles::use(std::size_t at) {
  const std::size_t piece = at / k_piece;
  if (current_ == k_none || slots_[current_].piece != piece) {
    put_back();
    const auto is_wanted = [&](const Slot& slot) {
      return slot.piece != k_none && (slot.piece + pieces() - piece) % pieces() <= k_ahead;
    };
    for (std::size_t i = 0; i <= std::min(k_ahead, pieces() - 1); ++i) {
      const std::size_t next = (piece + i) % pieces();
      if (slot_of(next) == k_none) {
        auto* const slot = std::find_if_not(slots_.begin(), slots_.end(), is_wanted);
        slot->piece = next;
        add(static_cast<std::size_t>(slot - slots_.begin()), nullptr);
      }
    }
    const std::size_t slot = slot_of(piece);
    wait(slots_[slot].ticket);
    current_ = slot;
  }
  return {memory(current_, 0) + at % k_piece, memory(current_, moments_ - 1) + at % k_piece};
}

std::span<float> MomentFiles::mapped(std::size_t moment) const {
  return {mapped_ + moment * count_, count_};
}

void MomentFiles::flush() {
  put_back();
  wait(added_);
}

void MomentFiles::forget() {
  flush();
  slots_.fill({});
  madvise(mapped_, moments_ * count_ * sizeof(float), MADV_DONTNEED);
}

void MomentFiles::put_back() {
  if (current_ != k_none) {
    add(std::exchange(current_, k_none), device_.stream().record());
  }
}

void MomentFiles::add(std::size_t slot, std::unique_ptr<Event> updated) {
  slots_[slot].ticket = ++added_;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({slots_[slot].piece, slot, std::move(updated)});
  }
  changed_.notify_all();
}

void MomentFiles::wait(std::size_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (!error_.empty()) {
    throw Error(error_);
  }
}

void MomentFiles::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (ends_) {
      return;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const bool is_done = carry_out(job);
    const int error = errno;
    lock.lock();
    if (!is_done && error_.empty()) {
      error_ = fmt::format("{}: cannot {} the optimizer's states: {}", folder_,
                           job.updated ? "write" : "read", std::strerror(error));
    }
    ++done_;
    changed_.notify_all();
  }
}

bool MomentFiles::carry_out(const Job& job) const {
  const std::size_t first = job.piece * k_piece;
  const std::size_t bytes = std::min(k_piece, count_ - first) * sizeof(float);
  if (job.updated) {
    job.updated->wait();
  }
  for (std::size_t moment = 0; moment < moments_; ++moment) {
    const std::size_t offset = (moment * count_ + first) * sizeof(float);
    float* const values = memory(job.slot, moment);
    if (!(job.updated ? file_.write(offset, values, bytes) : file_.read(offset, values, bytes))) {
      return false;
    }
  }
  return true;
}

} // namespace trainer
