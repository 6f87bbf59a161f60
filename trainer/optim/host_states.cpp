#include "trainer/optim/host_states.h"

#include <algorithm>
#include <utility>

namespace trainer {

HostStates::HostStates(Device& device, std::vector<std::span<float>> rows)
    : device_(device), rows_(std::move(rows)), largest_(largest(rows_.front().size())),
      memory_(device.allocate(memory_bytes(rows_.size(), rows_.front().size()) / sizeof(float),
                              DType::f32)),
      in_(device.make_stream()), out_(device.make_stream()) {
  in_->wait(*device.stream().record()); // It clears new memory.
}

/// Large enough that copies of it use the bus well, and small beside the rows.
std::size_t HostStates::largest(std::size_t count) {
  constexpr std::size_t k_parts = 32;
  constexpr std::size_t k_granule = 16; // Of Optimizer::update()'s ranges.
  constexpr std::size_t k_least = std::size_t{1} << 10;
  constexpr std::size_t k_most = std::size_t{1} << 20;
  const std::size_t part = count / k_parts / k_granule * k_granule;
  return std::min(count, std::clamp(part, k_least, k_most));
}

std::size_t HostStates::memory_bytes(std::size_t rows, std::size_t count, bool rounds_first) {
  return k_slots * largest(count) * (rows * sizeof(float) + (rounds_first ? sizeof(Bf16Value) : 0));
}

void HostStates::round_first(const Buffer& halves) {
  halves_ = halves;
  half_memory_ = device_.allocate(k_slots * largest_, halves.dtype());
}

void HostStates::begin() { in_->wait(*out_->record()); }

RowPointers HostStates::take(Stream& stream, std::size_t at, std::size_t count) {
  slot_ = (slot_ + 1) % k_slots;
  at_ = at;
  count_ = count;
  if (is_free_[slot_]) {
    in_->wait(*is_free_[slot_]);
  }
  RowPointers found{};
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    found[row] = memory(row);
    in_->copy(rows_[row].data() + at, found[row], count * sizeof(float));
  }
  stream.wait(*in_->record());
  return found;
}

void HostStates::put_back(Stream& stream) {
  if (halves_) {
    device_.kernels().narrow(stream, count_, halves_.type, memory(0), half_memory().memory);
  }
  out_->wait(*stream.record());
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    out_->copy(memory(row), rows_[row].data() + at_, count_ * sizeof(float));
  }
  if (halves_) {
    out_->copy(half_memory().memory, (halves_ + at_).memory, count_ * size_of(halves_.type));
  }
  is_free_[slot_] = out_->record();
}

} // namespace trainer
