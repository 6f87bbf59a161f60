// dtrain-mpi.so: the table of plugin.h over Open MPI's C interface.
#include "trainer/collectives/mpi/plugin.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#define OMPI_SKIP_MPICXX 1 // The old C++ bindings would be one more library to link.
#include <mpi.h>

#include "trainer/collectives/wire.h"

namespace {

using trainer::WireType;

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

/// An operation under way, and what it needs until it is done.
struct Request {
  MPI_Request handle = MPI_REQUEST_NULL;
  MPI_Op op = MPI_OP_NULL; ///< One of its own.

  Request() = default;
  ~Request() {
    if (op != MPI_OP_NULL) {
      MPI_Op_free(&op);
    }
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
};

/// Hands the request that `begin` starts to the caller.
template <typename Begin>
int start(void** request, const Begin& begin) {
  auto own = std::make_unique<Request>();
  const int error = begin(*own);
  *request = error == MPI_SUCCESS ? own.release() : nullptr;
  return error;
}

/// An MPI_User_function: sum[i] = R(from[i] + sum[i]).
template <WireType type>
void add_halves(void* from, void* sum, int* count, MPI_Datatype*) {
  const trainer::WireKernels& kernels = trainer::wire_kernels(type);
  const auto* arrived = static_cast<const std::uint16_t*>(from);
  auto* own = static_cast<std::uint16_t*>(sum);
  std::array<float, 2048> block; // Of the L1 cache.
  for (auto left = static_cast<std::size_t>(*count); left > 0;) {
    const std::size_t size = std::min(left, block.size());
    kernels.widen(block.data(), own, size);
    kernels.add(own, arrived, block.data(), size);
    arrived += size;
    own += size;
    left -= size;
  }
}

// test() waits for what these start, which the analyzer does not see.
// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
int sum_floats(float* in_place, std::size_t count, void** request) {
  return start(request, [&](Request& own) {
    return MPI_Iallreduce(MPI_IN_PLACE, in_place, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD, &own.handle);
  });
}

int sum_halves(std::uint16_t* in_place, std::size_t count, int wire, void** request) {
  return start(request, [&](Request& own) {
    constexpr int k_commutes = 1;
    const auto add = static_cast<WireType>(wire) == WireType::bf16 ? add_halves<WireType::bf16>
                                                                   : add_halves<WireType::fp16>;
    const int error = MPI_Op_create(add, k_commutes, &own.op);
    return error != MPI_SUCCESS ? error
                                : MPI_Iallreduce(MPI_IN_PLACE, in_place, static_cast<int>(count),
                                                 MPI_UINT16_T, own.op, MPI_COMM_WORLD, &own.handle);
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
    delete own;
  }
  return error;
}

const DtrainMpi k_table = {k_dtrain_mpi_version, initialize, finalize,  library, error_text,
                           sum_floats,           sum_halves, broadcast, barrier, test};

} // namespace

extern "C" __attribute__((visibility("default"))) const DtrainMpi* dtrain_mpi() { return &k_table; }
