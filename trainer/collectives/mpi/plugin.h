/* What the trainer asks of MPI, as a table of functions: dtrain-mpi.so, which is linked with Open
 * MPI, exports it, and the trainer loads it when it is wanted. So the trainer starts where there is
 * no MPI, and nothing of MPI's own interface is part of it.
 *
 * All functions but `text` return 0, or MPI's error code, which text() spells out. One thread at a
 * time calls them. Every rank starts the same operations in the same order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { k_dtrain_mpi_version = 3 };
#define DTRAIN_MPI_SYMBOL "dtrain_mpi"

struct DtrainMpi {
  int version; /* k_dtrain_mpi_version, or the table is another one. */

  int (*initialize)(int* rank, int* world_size);
  int (*finalize)(void);
  /* The library's own name and version; `size` holds what fits, with a NUL. */
  int (*library)(char* text, size_t size);
  void (*text)(int error, char* text, size_t size);

  /* Start an operation on buffers that stay as they are until it is done. `request` is the
   * plug-in's and is freed by the test() that finds it done. Counts and places are of bytes, one a
   * rank, and below 2^31. */

  /* To rank r go `counts[r]` bytes from `places[r]` on; from it come as many as it gives. */
  int (*all_to_all)(const void* from, const int* from_counts, const int* from_places, void* to,
                    const int* to_counts, const int* to_places, void** request);
  /* What lies at `places[r]` on rank r comes to the same place on all. Those that are `second` are
   * started in an order of their own, which must be all ranks'. */
  int (*all_gather)(void* in_place, const int* counts, const int* places, int second,
                    void** request);
  int (*broadcast)(void* bytes, size_t count, int root, void** request);
  int (*barrier)(void** request);
  /* Also moves all other operations on. */
  int (*test)(void* request, int* done);
};

/* The one symbol that the plug-in exports. */
const struct DtrainMpi* dtrain_mpi(void);

#ifdef __cplusplus
}
#endif
