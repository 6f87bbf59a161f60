// NCCL behind its table of functions: libnccl.so.2 from the loader's path, from beside the plug-in,
// or from a Python wheel.
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/open_library.h"

namespace trainer {
namespace {

constexpr const char* k_nccl_library = "libnccl.so.2";
constexpr int k_least_nccl = NCCL_VERSION(2, 28, 0);
static_assert(static_cast<int>(ncclInProgress) == k_nccl_in_progress);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

/// The library's functions.
struct Nccl {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommRegister) add;
  decltype(&ncclCommDeregister) remove;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
};
Nccl nccl;

ncclComm_t comm_of(void* comm) { return static_cast<ncclComm_t>(comm); }

void text(int error, void* comm, char* to, std::size_t size) {
  const char* more = comm == nullptr ? "" : nccl.last_error(comm_of(comm));
  (void)std::snprintf(to, size, "%s%s%s", nccl.error_string(static_cast<ncclResult_t>(error)),
                      *more == '\0' ? "" : ": ", more);
}

int make_id(NcclId* id) {
  ncclUniqueId made;
  const ncclResult_t error = nccl.unique_id(&made);
  std::memcpy(id, &made, sizeof made);
  return error;
}

/// Makes `calls` in a group. Returns the first result that is neither success nor in progress;
/// otherwise that of the group's end.
template <typename Calls>
int grouped(const Calls& calls) {
  ncclResult_t error = nccl.group_start();
  if (error != ncclSuccess) {
    return error;
  }
  error = calls();
  const ncclResult_t end = nccl.group_end();
  return error != ncclSuccess && error != ncclInProgress ? error : end;
}

int connect(const NcclId* id, int world_size, NcclRank* ranks, std::size_t count) {
  ncclUniqueId own;
  std::memcpy(&own, id, sizeof own);
  return grouped([&] {
    ncclResult_t error = ncclSuccess;
    for (std::size_t i = 0; i < count && (error == ncclSuccess || error == ncclInProgress); ++i) {
      if (cudaSetDevice(ranks[i].gpu) != cudaSuccess) {
        return ncclUnhandledCudaError;
      }
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t made = nullptr;
      error = nccl.init(&made, world_size, own, ranks[i].rank, &config);
      ranks[i].comm = made;
    }
    return error;
  });
}

int state(void* comm) {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = nccl.async_error(comm_of(comm), &error);
  return asked != ncclSuccess ? asked : error;
}

int add_memory(void* comm, void* memory, std::size_t bytes, void** handle) {
  return nccl.add(comm_of(comm), memory, bytes, handle);
}
int remove_memory(void* comm, void* handle) { return nccl.remove(comm_of(comm), handle); }

ncclDataType_t type_of(DType dtype) {
  return dtype == DType::f32    ? ncclFloat32
         : dtype == DType::f64  ? ncclFloat64
         : dtype == DType::bf16 ? ncclBfloat16
         : dtype == DType::f16  ? ncclFloat16
                                : ncclUint8;
}

void* own_chunk(const NcclCall& call) {
  return static_cast<char*>(call.memory) +
         static_cast<std::size_t>(call.root) * call.count * size_of(call.dtype);
}

ncclResult_t put_one(const NcclCall& call) {
  const ncclDataType_t type = type_of(call.dtype);
  const ncclComm_t comm = comm_of(call.comm);
  const CudaStreamHandle& on = *handle_of(*call.stream);
  const cudaStream_t stream = on.stream;
  void* const memory = call.memory;
  if (cudaSetDevice(on.gpu) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  switch (call.op) {
  case NcclCall::Op::all_reduce:
    return nccl.all_reduce(memory, memory, call.count, type, ncclSum, comm, stream);
  case NcclCall::Op::reduce:
    return nccl.reduce(memory, memory, call.count, type, ncclSum, call.root, comm, stream);
  case NcclCall::Op::broadcast:
    return nccl.broadcast(memory, memory, call.count, type, call.root, comm, stream);
  case NcclCall::Op::reduce_scatter:
    return nccl.reduce_scatter(memory, own_chunk(call), call.count, type, ncclSum, comm, stream);
  case NcclCall::Op::all_gather:
    return nccl.all_gather(own_chunk(call), memory, call.count, type, comm, stream);
  }
  return ncclInvalidArgument;
}

int put(const NcclCall* calls, std::size_t count) {
  return grouped([&] {
    ncclResult_t error = ncclSuccess;
    for (std::size_t i = 0; i < count && (error == ncclSuccess || error == ncclInProgress); ++i) {
      error = put_one(calls[i]);
    }
    return error;
  });
}

int abort_comm(void* comm) { return nccl.abort(comm_of(comm)); }
int destroy(void* comm) { return nccl.destroy(comm_of(comm)); }

/// Empty, or the reason why NCCL cannot be used.
std::string load(DtrainNccl& table) {
  std::string why;
  void* library = open_library(k_nccl_library, why, [](void* one) {
    const auto ask = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(one, "ncclGetVersion"));
    int version = 0;
    return ask != nullptr && ask(&version) == ncclSuccess && version >= k_least_nccl_version;
  });
  if (library == nullptr) {
    return why;
  }
  bool is_whole = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    is_whole = is_whole && function != nullptr;
  };
  find(nccl.get_version, "ncclGetVersion");
  find(nccl.error_string, "ncclGetErrorString");
  find(nccl.last_error, "ncclGetLastError");
  find(nccl.unique_id, "ncclGetUniqueId");
  find(nccl.init, "ncclCommInitRankConfig");
  find(nccl.async_error, "ncclCommGetAsyncError");
  find(nccl.add, "ncclCommRegister");
  find(nccl.remove, "ncclCommDeregister");
  find(nccl.abort, "ncclCommAbort");
  find(nccl.destroy, "ncclCommDestroy");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.all_gather, "ncclAllGather");
  if (!is_whole || nccl.get_version(&table.version) != ncclSuccess ||
      table.version < k_least_nccl) {
    return "libnccl.so.2 is older than 2.28";
  }
  return "";
}

} // namespace

const DtrainNccl* find_nccl(std::string& why) {
  static DtrainNccl table = {0,          text,          make_id, connect,    state,
                             add_memory, remove_memory, put,     abort_comm, destroy};
  static const std::string missing = load(table);
  why = missing;
  return missing.empty() ? &table : nullptr;
}

} // namespace trainer
