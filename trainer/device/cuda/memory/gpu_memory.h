// A GPU's memory as this process has it: how much, and what to say where there is no more. For all
// threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace trainer {

/// Notes what CUDA copies by itself: memory of a GPU, or pinned.
void note_memory(const void* first, std::size_t bytes);
void forget_memory(const void* first);
/// Whether it is the host's, and not noted: who copies it waits.
bool is_pageable(const void* memory);

class GpuMemory {
 public:
  explicit GpuMemory(int gpu) : gpu_(gpu) {}

  int gpu() const { return gpu_; }

  /// By CUDA's runtime, whose error code this returns, behind what set_trim() was given.
  int allocate(std::size_t bytes, void** to);
  void free(void* memory, std::size_t bytes);

  /// What frees memory that is kept to be used again; null: nothing.
  void set_trim(std::function<void()> trim) { trim_ = std::move(trim); }

  /// Call before memory is allocated elsewhere that kernels use: CUDA graphs refer to addresses.
  void change() { ++changes_; }
  std::uint64_t changes() const { return changes_; }

  /// Counts bytes allocated elsewhere, or, below 0, freed.
  void add(std::ptrdiff_t bytes) {
    const std::size_t all = bytes_ += static_cast<std::size_t>(bytes);
    for (std::size_t most = most_; most < all && !most_.compare_exchange_weak(most, all);) {
    }
  }
  std::size_t most() const { return most_; }

  /// How many bytes all of it was planned to take, for fail_without(), which asks then; null: not
  /// known.
  void set_planned(std::function<std::size_t()> planned) { planned_ = std::move(planned); }

  /// Throws Error: there are not so many bytes more, of which CUDA says `error`.
  [[noreturn]] void fail_without(std::size_t bytes, int error) const;

 private:
  int gpu_;
  std::function<void()> trim_;
  std::function<std::size_t()> planned_;
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::size_t> bytes_{0}; ///< Allocated now.
  std::atomic<std::size_t> most_{0};
};

} // namespace trainer
