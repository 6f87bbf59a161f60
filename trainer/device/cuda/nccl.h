// NCCL on the memory of GPUs, through the plug-in (cuda_device.h): a table of functions, which
// tests replace with their own (tests/cuda_on_cpu/nccl.cpp).
#pragma once

#include <cstddef>

#include "trainer/device/buffer.h"

namespace trainer {

class Stream;

inline constexpr int k_least_nccl_version = 22809; ///< In 2.28.3 to .8 ncclCommAbort may hang.

/// The id by which the ranks of an NCCL communicator find each other: one rank makes it and sends
/// it to the others.
struct NcclId {
  char bytes[128];
};

/// A rank of a communicator, on a GPU of this process.
struct NcclRank {
  int rank;
  int gpu;
  void* comm; ///< NCCL's communicator, made by connect().
};

/// A rank's part of a collective, in place.
struct NcclCall {
  enum class Op : int { all_reduce, reduce, broadcast, reduce_scatter, all_gather };
  Op op;
  void* comm;
  const Stream* stream;
  void* memory;
  std::size_t count; ///< Values of `dtype`; in the last two collectives, of a rank's chunk.
  DType dtype;
  int root; ///< Root of reduce and broadcast; in the last two collectives, this rank.
};

/// NCCL with non-blocking calls: one that returns k_nccl_in_progress is done when state() returns
/// 0, and until then its communicator takes no other call but abort. All return 0,
/// k_nccl_in_progress, or NCCL's error code, which text() spells out.
inline constexpr int k_nccl_in_progress = 7;
struct DtrainNccl {
  int version; ///< NCCL's version: 23007 is 2.30.7.
  void (*text)(int error, void* comm, char* text, std::size_t size);
  int (*make_id)(NcclId* id);
  /// Begins to connect all ranks of this process with those of the others.
  int (*connect)(const NcclId* id, int world_size, NcclRank* ranks, std::size_t count);
  int (*state)(void* comm);
  /// Registers memory for collectives in place, which are faster on registered memory.
  int (*add_memory)(void* comm, void* memory, std::size_t bytes, void** handle);
  int (*remove_memory)(void* comm, void* handle);
  /// Starts collectives as one group, so that none waits for another; each runs on its own stream.
  int (*put)(const NcclCall* calls, std::size_t count);
  /// Aborts running collectives and frees `comm`. May be called beside any other call.
  int (*abort)(void* comm);
  /// Frees `comm`; no collective may be running.
  int (*destroy)(void* comm);
};

} // namespace trainer
