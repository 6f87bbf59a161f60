#include "tests/cuda_on_cpu/runtime.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_on_cpu/world.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, size) ((void)(memory), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(memory, size) ((void)(memory), (void)(size))
#endif

namespace cuda_on_cpu {

void fail(const char* what) {
  (void)std::fprintf(stderr, "cuda_on_cpu: %s\n", what);
  std::abort();
}

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

namespace {

constexpr std::size_t k_alignment = 256; ///< Of an allocation, and so much between two.
constexpr int k_version = 13000;
constexpr int k_multiprocessors = 3; ///< Of a GPU: few, so that a block takes several rows.

int gpus() { return number("DTRAIN_FAKE_GPUS", 2); }
int driver() { return number("DTRAIN_FAKE_DRIVER", k_version); }

} // namespace

World& world() {
  static World one;
  return one;
}

Gpu& gpu_of(int index) {
  if (index < 0 || index >= gpus()) {
    fail("a GPU that there is not");
  }
  Gpu& gpu = world().gpus[index];
  if (gpu.memory == nullptr) {
    void* memory =
        mmap(nullptr, k_memory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      fail("no memory");
    }
    gpu.memory = static_cast<std::byte*>(memory);
  }
  return gpu;
}

bool is_on_gpu(int gpu, const void* memory) {
  const std::lock_guard lock(world().mutex);
  return gpu_of(gpu).holds(memory);
}

std::size_t live() {
  const std::lock_guard lock(world().mutex);
  std::size_t all = world().queues.size() + world().events.size() + world().noted.size() +
                    world().graphs.size() + world().pinned.size() + world().registered.size() +
                    world().reserved.size() + world().physical.size();
  for (const auto& [index, gpu] : world().gpus) {
    all += gpu.taken.size();
  }
  return all;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  case cudaErrorInsufficientDriver:
    return "CUDA driver version is insufficient for CUDA runtime version";
  case cudaErrorDevicesUnavailable:
    return "CUDA-capable device(s) is/are busy or unavailable";
  case cudaErrorECCUncorrectable:
    return "uncorrectable ECC error encountered";
  case cudaErrorLaunchFailure:
    return "unspecified launch failure";
  case cudaErrorUnknown:
    return "unknown error";
  case cudaErrorIllegalAddress:
    return "an illegal memory access was encountered";
  case cudaErrorNotSupported:
    return "operation not supported";
  default:
    return "invalid argument";
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = k_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = driver() >= k_version ? gpus() : 0;
  return driver() < k_version ? cudaErrorInsufficientDriver
         : *count == 0        ? cudaErrorNoDevice
                              : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const std::lock_guard lock(world().mutex);
  gpu_of(device);
  *properties = {};
  (void)std::snprintf(properties->name, sizeof properties->name, "a CPU in a GPU's place");
  properties->major = number("DTRAIN_FAKE_COMPUTE", 9);
  properties->multiProcessorCount = k_multiprocessors;
  const char* uuid = std::getenv("DTRAIN_FAKE_UUID"); // Else as if every process had its own GPUs.
  (void)std::snprintf(properties->uuid.bytes, sizeof properties->uuid, "%.8s %d",
                      uuid == nullptr ? std::to_string(getpid()).c_str() : uuid, device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  constexpr int k_kilohertz = 1'000'000;
  constexpr int k_most_shared = 227 << 10; // As an H100's.
  *value = attribute == cudaDevAttrClockRate             ? k_kilohertz
           : attribute == cudaDevAttrMultiProcessorCount ? k_multiprocessors
                                                         : k_most_shared;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  (void)std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02X:00.0", device + 0x1b);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(world().mutex);
  gpu_of(device);
  current = device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer && number("DTRAIN_FAKE_PEERS", 1) != 0 ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr /*attribute*/, int /*from*/,
                                      int /*to*/) {
  *value = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  gpu_of(peer);
  return world().peers.emplace(current, peer).second ? cudaSuccess
                                                     : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(world().mutex);
  *total = k_memory;
  const std::size_t left = k_memory - gpu_of(current).used;
  *free = std::min(left, static_cast<std::size_t>(number("DTRAIN_FAKE_FREE", k_memory)));
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  Gpu& gpu = gpu_of(current);
  const std::size_t size = (bytes / k_alignment + 2) * k_alignment;
  std::size_t at = 0;
  for (const auto& [offset, taken] : gpu.taken) { // The first gap that is wide enough.
    if (offset - at >= size) {
      break;
    }
    at = offset + taken;
  }
  if (at + size > k_memory) {
    return cudaErrorMemoryAllocation;
  }
  gpu.taken[at] = size;
  gpu.used = std::max(gpu.used, at + size);
  const Opened opened(gpu);
  ASAN_UNPOISON_MEMORY_REGION(gpu.memory + at, size);
  std::memset(gpu.memory + at, 0xff, size);
  ASAN_POISON_MEMORY_REGION(gpu.memory + at + bytes, size - bytes);
  *memory = gpu.memory + at;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  Lock lock(world().mutex);
  run_all(lock, current);
  Gpu& gpu = gpu_of(current);
  const auto it =
      gpu.taken.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - gpu.memory));
  if (it == gpu.taken.end()) {
    fail("memory is given back that was not given out");
  }
  ASAN_POISON_MEMORY_REGION(gpu.memory + it->first, it->second);
  gpu.taken.erase(it);
  constexpr std::size_t k_page = 4096;
  const std::size_t last =
      gpu.taken.empty() ? 0 : gpu.taken.rbegin()->first + gpu.taken.rbegin()->second;
  const std::size_t used = (last + k_page - 1) / k_page * k_page;
  if (used < gpu.used) { // To open the memory takes a time for each page that it has.
    madvise(gpu.memory + used, gpu.used - used, MADV_DONTNEED);
    gpu.used = used;
  }
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  auto* room = new std::byte[bytes];
  world().pinned[room] = bytes;
  *memory = room;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  Lock lock(world().mutex);
  for (int index = 0; index < gpus(); ++index) {
    run_all(lock, index);
  }
  auto* room = static_cast<std::byte*>(memory);
  if (world().pinned.erase(room) != 1) {
    fail("pinned memory is given back that was not given out");
  }
  delete[] room;
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  if (number("DTRAIN_FAKE_REGISTER", 1) == 0) {
    return cudaErrorNotSupported;
  }
  world().registered[static_cast<std::byte*>(memory)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  Lock lock(world().mutex);
  for (int index = 0; index < gpus(); ++index) {
    run_all(lock, index);
  }
  if (world().registered.erase(static_cast<std::byte*>(memory)) != 1) {
    fail("memory is unpinned that was not pinned");
  }
  return cudaSuccess;
}
