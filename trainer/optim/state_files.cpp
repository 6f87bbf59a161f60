#include "trainer/optim/state_files.h"

#include <algorithm>
#include <utility>

#include "trainer/errors.h"

namespace trainer {

Pieces Pieces::of(std::size_t count) {
  Pieces pieces{{0}};
  do {
    pieces.bounds.push_back(std::min(pieces.bounds.back() + StateFiles::k_piece, count));
  } while (pieces.bounds.back() < count);
  return pieces;
}

std::size_t Pieces::largest() const {
  std::size_t most = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    most = std::max(most, bounds[i + 1] - bounds[i]);
  }
  return most;
}

std::size_t Pieces::holder(std::size_t at) const {
  return static_cast<std::size_t>(std::upper_bound(bounds.begin(), bounds.end(), at) -
                                  bounds.begin()) -
         1;
}

StateFiles::Row::Row(StateFiles& files, const RowOptions& options, std::size_t count)
    : files_(files), file_(options.folder, options.what) {
  file_.allocate(0, std::max<std::size_t>(count, 1) * sizeof(float));
}

void StateFiles::Row::read(std::size_t at, std::span<float> to) const {
  file_.read(at * sizeof(float), to.data(), to.size_bytes());
}

void StateFiles::Row::write_back(std::size_t at, std::span<const float> from) const {
  file_.write(at * sizeof(float), from.data(), from.size_bytes());
}

void StateFiles::Row::write(std::size_t at, std::span<const float> from) {
  files_.flush();
  std::fill(files_.slots_.begin(), files_.slots_.end(), Slot{}); // Pieces are read anew.
  write_back(at, from);
}

ValueFile::Ticket StateFiles::Row::start_read(std::size_t at, std::span<float> to) {
  files_.put_back();
  return files_.add([this, at, to] { read(at, to); });
}

StateFiles::StateFiles(Device& device, Pieces pieces, const std::vector<RowOptions>& rows)
    : pieces_(std::move(pieces)), largest_(pieces_.largest()),
      memory_(
          device.allocate_pinned(memory_bytes(rows.size(), pieces_) / sizeof(float), DType::f32)),
      slots_(k_slots) {
  for (const RowOptions& row : rows) {
    rows_.push_back(std::make_unique<Row>(*this, row, pieces_.bounds.back()));
  }
  thread_ = std::thread([this] { work(); });
}

StateFiles::~StateFiles() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::size_t StateFiles::memory_bytes(std::size_t rows, const Pieces& pieces) {
  return k_slots * rows * pieces.largest() * sizeof(float);
}

float* StateFiles::memory(std::size_t slot, std::size_t row) const {
  return memory_.data() + (slot * rows_.size() + row) * largest_;
}

std::size_t StateFiles::slot_of(std::size_t piece) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.piece == piece; });
  return found == slots_.end() ? k_none : static_cast<std::size_t>(found - slots_.begin());
}

RowPointers StateFiles::use(std::size_t at, Stream& stream) {
  const std::size_t piece = pieces_.holder(at);
  updating_ = &stream;
  if (current_ == k_none || slots_[current_].piece != piece) {
    put_back();
    const std::size_t all = pieces_.count();
    const auto is_wanted = [&](const Slot& slot) {
      return slot.piece != k_none && (slot.piece + all - piece) % all <= Pieces::k_ahead;
    };
    for (std::size_t i = 0; i <= std::min(Pieces::k_ahead, all - 1); ++i) {
      const std::size_t next = (piece + i) % all;
      if (slot_of(next) == k_none) {
        const auto slot = std::find_if_not(slots_.begin(), slots_.end(), is_wanted);
        slot->piece = next;
        move(static_cast<std::size_t>(slot - slots_.begin()), nullptr);
      }
    }
    const std::size_t slot = slot_of(piece);
    wait(slots_[slot].ticket);
    current_ = slot;
  }
  RowPointers found{};
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    found[row] = memory(current_, row) + (at - pieces_.bounds[piece]);
  }
  return found;
}

void StateFiles::flush() {
  put_back();
  wait(added_);
}

void StateFiles::put_back() {
  if (current_ != k_none) {
    move(std::exchange(current_, k_none), updating_->record());
  }
}

/// Reads a slot's piece, or, if it was updated, writes it after this event.
void StateFiles::move(std::size_t slot, std::shared_ptr<Event> updated) {
  const std::size_t first = pieces_.bounds[slots_[slot].piece];
  const std::size_t count = pieces_.bounds[slots_[slot].piece + 1] - first;
  slots_[slot].ticket = add([this, slot, first, count, updated = std::move(updated)] {
    if (updated) {
      updated->wait();
    }
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::span<float> values(memory(slot, row), count);
      updated ? rows_[row]->write_back(first, values) : rows_[row]->read(first, values);
    }
  });
}

std::size_t StateFiles::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return ++added_;
}

void StateFiles::wait(std::size_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
  if (!error_.empty()) {
    throw Error(error_);
  }
}

void StateFiles::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (ends_) {
      return;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::string error;
    try {
      job();
    } catch (const std::exception& e) {
      error = e.what();
    }
    job = nullptr; // Its event, too, ends in this thread before anyone is told.
    lock.lock();
    if (error_.empty()) {
      error_ = std::move(error);
    }
    ++done_;
    changed_.notify_all();
  }
}

} // namespace trainer
