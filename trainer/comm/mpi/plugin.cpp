// dtrain-mpi.so: the table of plugin.h over Open MPI's C interface.
#include "trainer/comm/mpi/plugin.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#define OMPI_SKIP_MPICXX 1 // The old C++ bindings would be one more library to link.
#include <mpi.h>

namespace {

int initialize(int* rank, int* world_size) {
  int provided = 0;
  // Communicators move between threads, but one thread at a time makes the calls.
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      error != MPI_SUCCESS) {
    return error;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return MPI_ERR_UNSUPPORTED_OPERATION;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, world_size);
  return MPI_SUCCESS;
}

int finalize() { return MPI_Finalize(); }

int library(char* text, std::size_t size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  const int error = MPI_Get_library_version(version, &length);
  if (error == MPI_SUCCESS && size > 0) {
    version[std::min<int>(length, sizeof version - 1)] = '\0';
    version[std::strcspn(version, ",\n")] = '\0'; // "Open MPI v4.1.4, package: …"
    std::snprintf(text, size, "%s", version);
  }
  return error;
}

void error_text(int error, char* text, std::size_t size) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(error, message, &length) != MPI_SUCCESS) {
    std::snprintf(message, sizeof message, "MPI error %d", error);
  }
  std::snprintf(text, size, "%s", message);
}

/// Hands the request that `begin` starts to the caller.
template <typename Begin>
int start(void** request, const Begin& begin) {
  auto own = std::make_unique<MPI_Request>(MPI_REQUEST_NULL);
  const int error = begin(own.get());
  *request = error == MPI_SUCCESS ? own.release() : nullptr;
  return error;
}

int sum_floats(float* in_place, std::size_t count, void** request) {
  return start(request, [&](MPI_Request* own) {
    return MPI_Iallreduce(MPI_IN_PLACE, in_place, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD, own);
  });
}

int broadcast(void* bytes, std::size_t count, int root, void** request) {
  return start(request, [&](MPI_Request* own) {
    return MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, root, MPI_COMM_WORLD, own);
  });
}

int barrier(void** request) {
  return start(request, [](MPI_Request* own) { return MPI_Ibarrier(MPI_COMM_WORLD, own); });
}

int test(void* request, int* done) {
  auto* own = static_cast<MPI_Request*>(request);
  const int error = MPI_Test(own, done, MPI_STATUS_IGNORE);
  if (error == MPI_SUCCESS && *done != 0) {
    delete own;
  }
  return error;
}

const DtrainMpi k_table = {k_dtrain_mpi_version, initialize, finalize, library, error_text,
                           sum_floats,           broadcast,  barrier,  test};

} // namespace

extern "C" __attribute__((visibility("default"))) const DtrainMpi* dtrain_mpi() { return &k_table; }
