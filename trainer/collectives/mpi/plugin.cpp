// dtrain-mpi.so: the table of plugin.h over Open MPI's C interface.
#include "trainer/collectives/mpi/plugin.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#define OMPI_SKIP_MPICXX 1 // The old C++ bindings would be one more library to link.
#include <mpi.h>

namespace {

MPI_Comm second = MPI_COMM_NULL; // For operations started in an order of their own.
int ranks = 1;

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
  ranks = *world_size;
  return MPI_Comm_dup(MPI_COMM_WORLD, &second);
}

int finalize() {
  MPI_Comm_free(&second);
  return MPI_Finalize();
}

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

/// An operation under way, and what MPI reads until it is done.
struct Request {
  MPI_Request handle = MPI_REQUEST_NULL;
  std::vector<int> numbers;

  /// A copy of a number a rank, by where it begins in `numbers`.
  std::size_t keep(const int* of_ranks) {
    numbers.insert(numbers.end(), of_ranks, of_ranks + ranks);
    return numbers.size() - static_cast<std::size_t>(ranks);
  }
};

/// Hands the request that `begin` starts to the caller.
template <typename Begin>
int start(void** request, const Begin& begin) {
  auto own = std::make_unique<Request>();
  const int error = begin(*own);
  *request = error == MPI_SUCCESS ? own.release() : nullptr;
  return error;
}

// test() waits for what these start, which the analyzer does not see.
// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
int all_to_all(const void* from, const int* from_counts, const int* from_places, void* to,
               const int* to_counts, const int* to_places, void** request) {
  return start(request, [&](Request& own) {
    const std::size_t given = own.keep(from_counts);
    const std::size_t given_at = own.keep(from_places);
    const std::size_t taken = own.keep(to_counts);
    const std::size_t taken_at = own.keep(to_places);
    const int* const numbers = own.numbers.data();
    return MPI_Ialltoallv(from, numbers + given, numbers + given_at, MPI_BYTE, to, numbers + taken,
                          numbers + taken_at, MPI_BYTE, MPI_COMM_WORLD, &own.handle);
  });
}

int all_gather(void* in_place, const int* counts, const int* places, int is_second,
               void** request) {
  return start(request, [&](Request& own) {
    const std::size_t kept = own.keep(counts);
    const std::size_t kept_at = own.keep(places);
    const int* const numbers = own.numbers.data();
    return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in_place, numbers + kept,
                           numbers + kept_at, MPI_BYTE, is_second != 0 ? second : MPI_COMM_WORLD,
                           &own.handle);
  });
}

int broadcast(void* bytes, std::size_t count, int root, void** request) {
  return start(request, [&](Request& own) {
    return MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, root, MPI_COMM_WORLD, &own.handle);
  });
}

int barrier(void** request) {
  return start(request, [](Request& own) { return MPI_Ibarrier(MPI_COMM_WORLD, &own.handle); });
}

// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

int test(void* request, int* done) {
  auto* own = static_cast<Request*>(request);
  const int error = MPI_Test(&own->handle, done, MPI_STATUS_IGNORE);
  if (error == MPI_SUCCESS && *done != 0) {
    delete own; // MPI has read its numbers.
  }
  return error;
}

const DtrainMpi k_table = {k_dtrain_mpi_version, initialize, finalize,  library, error_text,
                           all_to_all,           all_gather, broadcast, barrier, test};

} // namespace

extern "C" __attribute__((visibility("default"))) const DtrainMpi* dtrain_mpi() { return &k_table; }
