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

enum { k_dtrain_mpi_version = 2 };
#define DTRAIN_MPI_SYMBOL "dtrain_mpi"

struct DtrainMpi {
  int version; /* k_dtrain_mpi_version, or the table is another one. */

  int (*initialize)(int* rank, int* world_size);
  int (*finalize)(void);
  /* The library's own name and version; `size` holds what fits, with a NUL. */
  int (*library)(char* text, size_t size);
  void (*text)(int error, char* text, size_t size);

  /* Start an operation on buffers that stay as they are until it is done. `request` is the
   * plug-in's and is freed by the test() that finds it done. Counts are below 2^31. */
  int (*sum_floats)(float* in_place, size_t count, void** request);
  /* Of 16-bit values, `wire` being the number of a WireType (wire.h): two are added in float32, and
   * their sum is rounded. Which two is MPI's choice; a + b and b + a have the same bits, and so
   * have all ranks. */
  int (*sum_halves)(uint16_t* in_place, size_t count, int wire, void** request);
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
