// NCCL on GPUs' memory, as the plug-in (cuda_device.h) has it for the trainer: a table of
// functions, for tests have one of their own (tests/cuda_on_cpu/nccl.cpp).
#pragma once

#include <cstddef>

#include "trainer/device/buffer.h"

namespace trainer {

class Stream;

/// What the ranks of a communicator of NCCL's find each other by: one makes it and tells the
/// others.
struct NcclId {
  char bytes[128];
};

/// A rank of a communicator, on a GPU of this process.
struct NcclRank {
  int rank;
  int gpu;
  void* comm; ///< NCCL's own, which connect() makes.
};

/// A rank's part of a collective, in place.
struct NcclCall {
  enum class Op : int { all_reduce, reduce, broadcast, reduce_scatter, all_gather };
  Op op;
  void* comm;
  const Stream* stream;
  void* memory;
  std::size_t count; ///< Of values of `dtype`: of the last two, in a rank's chunk.
  DType dtype;
  int root; ///< Of reduce and broadcast; of the last two, this rank.
};

/// NCCL, whose calls do not block here: what returns k_nccl_in_progress is done when state() says
/// 0, and until then its communicator takes no other call but abort. All return 0, that, or NCCL's
/// error code, which text() spells out.
inline constexpr int k_nccl_in_progress = 7;
struct DtrainNccl {
  int version; ///< NCCL's: 23007 is 2.30.7.
  void (*text)(int error, void* comm, char* text, std::size_t size);
  int (*make_id)(NcclId* id);
  /// Begins to connect all ranks of this process with those of the others.
  int (*connect)(const NcclId* id, int world_size, NcclRank* ranks, std::size_t count);
  int (*state)(void* comm);
  /// Memory that collectives read and write in place, faster where NCCL knows of it.
  int (*add_memory)(void* comm, void* memory, std::size_t bytes, void** handle);
  int (*remove_memory)(void* comm, void* handle);
  /// As one group: none waits for another. Each is carried out on its stream.
  int (*put)(const NcclCall* calls, std::size_t count);
  /// Ends what is under way, whatever it has come to, and frees `comm`. Beside any other call.
  int (*abort)(void* comm);
  /// Frees `comm`, of which nothing is under way.
  int (*destroy)(void* comm);
};

} // namespace trainer
