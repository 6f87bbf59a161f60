// The driver's virtual memory management in tests: what is mapped can be touched by its GPU while
// something is carried out, what is not mapped by nobody. A page that is mapped holds no numbers
// until it is written to, whoever had its memory before.
#include <cstring>
#include <string>

#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

#include "tests/cuda_on_cpu/world.h"

using namespace cuda_on_cpu;

namespace {

constexpr int k_page = 64 << 10;

std::byte* at_address(CUdeviceptr at) { return reinterpret_cast<std::byte*>(at); }

/// Addresses without memory.
std::byte* reserve(void* at, std::size_t bytes) {
  void* const memory =
      mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0),
           -1, 0);
  if (memory == MAP_FAILED) {
    fail("no addresses");
  }
  return static_cast<std::byte*>(memory);
}

bool is_reserved(const std::byte* at, std::size_t bytes) {
  auto it = world().reserved.upper_bound(at);
  return it != world().reserved.begin() && at + bytes <= (--it)->first + it->second;
}

std::size_t allocated(int gpu) {
  std::size_t all = 0;
  for (const auto& [offset, size] : gpu_of(gpu).taken) {
    all += size;
  }
  for (const auto& [handle, memory] : world().physical) {
    all += memory.gpu == gpu ? memory.bytes : 0;
  }
  return all;
}

} // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* /*status*/) {
  const std::pair<const char*, void*> all[] = {
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&cuDeviceGetAttribute)},
      {"cuDeviceCanAccessPeer", reinterpret_cast<void*>(&cuDeviceCanAccessPeer)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
      {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)}};
  for (const auto& [name, address] : all) {
    if (std::strcmp(symbol, name) == 0) {
      *function = address;
      return cudaSuccess;
    }
  }
  return cudaErrorInvalidValue;
}

cudaError_t cudaDeviceSynchronize() {
  Lock lock(world().mutex);
  run_all(lock, current);
  return world().error;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute /*attribute*/, CUdevice /*gpu*/) {
  *value = number("DTRAIN_FAKE_PAGE", k_page) > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice gpu, CUdevice peer) {
  *can = gpu != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* /*kind*/,
                                       CUmemAllocationGranularity_flags /*flags*/) {
  *bytes = static_cast<std::size_t>(number("DTRAIN_FAKE_PAGE", k_page));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t /*alignment*/,
                             CUdeviceptr /*wanted*/, unsigned long long /*flags*/) {
  const std::lock_guard lock(world().mutex);
  std::byte* const first = reserve(nullptr, bytes);
  world().reserved[first] = bytes;
  *at = reinterpret_cast<CUdeviceptr>(first);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  const auto it = world().reserved.find(at_address(at));
  if (it == world().reserved.end() || it->second != bytes) {
    fail("addresses are given back that were not reserved");
  }
  for (const auto& [index, gpu] : world().gpus) {
    const auto page = gpu.mapped.lower_bound(at_address(at));
    if (page != gpu.mapped.end() && page->first < at_address(at) + bytes) {
      fail("addresses are given back where memory is mapped");
    }
  }
  munmap(at_address(at), bytes);
  world().reserved.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* made, std::size_t bytes,
                     const CUmemAllocationProp* kind, unsigned long long /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  if (allocated(kind->location.id) + bytes > k_memory) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  static CUmemGenericAllocationHandle last = 0;
  *made = ++last;
  world().physical[*made] = {kind->location.id, bytes, false};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(world().mutex);
  const auto it = world().physical.find(handle);
  if (it == world().physical.end() || it->second.is_mapped) {
    fail("physical memory is given back that there is not, or that is mapped");
  }
  world().physical.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  const auto it = world().physical.find(handle);
  std::byte* const first = at_address(at);
  if (it == world().physical.end() || it->second.is_mapped || it->second.bytes != bytes ||
      offset != 0 || !is_reserved(first, bytes)) {
    fail("a mapping of memory or addresses that there are not");
  }
  Gpu& gpu = gpu_of(it->second.gpu);
  if (gpu.holds(first)) {
    fail("memory is mapped where there is some");
  }
  it->second.is_mapped = true;
  mprotect(first, bytes, PROT_READ | PROT_WRITE);
  std::memset(first, 0xff, bytes);
  mprotect(first, bytes, PROT_NONE);
  gpu.mapped[first] = {bytes, handle, false};
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  std::byte* const first = at_address(at);
  for (auto& [index, gpu] : world().gpus) {
    const auto it = gpu.mapped.find(first);
    if (it != gpu.mapped.end() && it->second.bytes == bytes) {
      world().physical[it->second.handle].is_mapped = false;
      reserve(first, bytes);
      gpu.mapped.erase(it);
      return CUDA_SUCCESS;
    }
  }
  fail("memory is unmapped that is not mapped");
}

CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  const std::lock_guard lock(world().mutex);
  for (std::size_t i = 0; i < count; ++i) {
    gpu_of(access[i].location.id);
    auto& mapped = gpu_of(access[i].location.id).mapped; // A peer's own pages are elsewhere.
    for (auto it = mapped.lower_bound(at_address(at));
         it != mapped.end() && it->first < at_address(at) + bytes; ++it) {
      it->second.has_access = true;
    }
  }
  return CUDA_SUCCESS;
}
