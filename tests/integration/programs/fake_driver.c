// CUDA's driver for programs of JAX and TensorFlow where there is no GPU (fake_cuda.py adds what else
// they look up, which is "not supported"): enough of it that they list the GPUs of fake_gpus.h. A
// GPU's memory is the host's, and nothing is computed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>

#include "fake_gpus.h"

static int contexts[k_most];
static _Thread_local int* current;

int cuInit(unsigned flags) { return (void)flags, look() > 0 ? 0 : k_no_device; }
int cuDriverGetVersion(int* to) { return *to = 12090, 0; }
int cuDeviceGetCount(int* to) { return *to = look(), 0; }
int cuDeviceGet(int* to, int index) { return *to = index, index < look() ? 0 : k_invalid_device; }
int cuDeviceGetName(char* to, int size, int gpu) {
  snprintf(to, (size_t)size, "fake GPU %d", shown[gpu]);
  return 0;
}
int cuDeviceGetUuid(void* to, int gpu) { return memset(to, shown[gpu], 16), 0; }
int cuDeviceGetUuid_v2(void* to, int gpu) { return cuDeviceGetUuid(to, gpu); }
int cuDeviceGetPCIBusId(char* to, int size, int gpu) {
  snprintf(to, (size_t)size, "0000:%02x:00.0", shown[gpu] + 1);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* to, int gpu) { return (void)gpu, *to = (size_t)1 << 30, 0; }
int cuDeviceGetAttribute(int* to, int what, int gpu) {
  return (void)gpu, *to = attribute(what), 0;
}
int cuDeviceCanAccessPeer(int* to, int gpu, int peer) {
  return (void)gpu, (void)peer, *to = 0, 0;
}

int cuDevicePrimaryCtxRetain(void** to, int gpu) { return *to = &contexts[gpu], 0; }
int cuDevicePrimaryCtxRelease_v2(int gpu) { return (void)gpu, 0; }
int cuDevicePrimaryCtxSetFlags_v2(int gpu, unsigned flags) { return (void)gpu, (void)flags, 0; }
int cuDevicePrimaryCtxGetState(int gpu, unsigned* flags, int* is_active) {
  return (void)gpu, *flags = 0, *is_active = 0, 0;
}
int cuCtxSetCurrent(void* context) { return current = context, 0; }
int cuCtxGetCurrent(void** to) { return *to = current, 0; }
int cuCtxGetDevice(int* to) { return *to = (int)(current - contexts), 0; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxGetStreamPriorityRange(int* least, int* most) {
  if (least != NULL) {
    *least = 0;
  }
  if (most != NULL) {
    *most = 0;
  }
  return 0;
}

int cuMemGetInfo_v2(size_t* available, size_t* all) {
  return *available = *all = (size_t)1 << 30, 0;
}
int cuMemGetAllocationGranularity(size_t* to, const void* properties, int option) {
  return (void)properties, (void)option, *to = (size_t)2 << 20, 0;
}
int cuMemAlloc_v2(void** to, size_t bytes) { return *to = malloc(bytes), 0; }
int cuMemFree_v2(void* memory) { return free(memory), 0; }
int cuMemHostAlloc(void** to, size_t bytes, unsigned flags) {
  return (void)flags, *to = malloc(bytes), 0;
}
int cuMemFreeHost(void* memory) { return free(memory), 0; }
int cuStreamCreate(void** to, unsigned flags) { return (void)flags, *to = malloc(1), 0; }
int cuStreamCreateWithPriority(void** to, unsigned flags, int priority) {
  return (void)priority, cuStreamCreate(to, flags);
}
int cuStreamDestroy_v2(void* stream) { return free(stream), 0; }
int cuStreamSynchronize(void* stream) { return (void)stream, 0; }
int cuStreamQuery(void* stream) { return (void)stream, 0; }
int cuEventCreate(void** to, unsigned flags) { return (void)flags, *to = malloc(1), 0; }
int cuEventDestroy_v2(void* event) { return free(event), 0; }

int cuGetErrorName(int error, const char** to) { return (void)error, *to = "NOT_SUPPORTED", 0; }
int cuGetErrorString(int error, const char** to) { return (void)error, *to = "not supported", 0; }

/// JAX looks for a GPU's device file before it looks for the driver.
int stat64(const char* path, struct stat64* to) {
  int (*real)(const char*, struct stat64*) = dlsym(RTLD_NEXT, "stat64");
  return real(strcmp(path, "/dev/nvidiactl") == 0 ? "/dev/null" : path, to);
}
