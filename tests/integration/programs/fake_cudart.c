// CUDA's runtime where there is no GPU: preloaded in its place for programs of PyTorch, found by those
// of JAX and TensorFlow (test_gpu_choice.py; fake_cuda.py adds what else they use, which is "not
// supported"). Of the GPUs of fake_gpus.h, whose memory is the host's; no kernel does anything.
#include "fake_gpus.h"

enum { k_version = 13020 };

static _Thread_local int current;

int cudaGetDeviceCount(int* to) {
  *to = look();
  return *to > 0 ? 0 : k_no_device;
}
int cudaGetDevice(int* to) {
  *to = current;
  return look() > 0 ? 0 : k_no_device;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= look()) {
    return k_invalid_device;
  }
  current = device;
  return 0;
}
int cudaDriverGetVersion(int* to) { return *to = k_version, 0; }
int cudaRuntimeGetVersion(int* to) { return *to = k_version, 0; }

/// Of cudaDeviceProp what anybody here reads.
struct Properties {
  char name[256];
  unsigned char uuid[16];
  char luid[8];
  unsigned node_mask;
  size_t memory;
  size_t shared;
  int registers;
  int warp;
  size_t pitch;
  int threads;
  int dims[3];
  int grid[3];
  size_t constants;
  int major;
  int minor;
};
int cudaGetDeviceProperties(struct Properties* to, int device) {
  if (device < 0 || device >= look()) {
    return k_invalid_device;
  }
  snprintf(to->name, sizeof to->name, "fake GPU %d", shown[device]);
  memset(to->uuid, shown[device], sizeof to->uuid);
  to->memory = (size_t)1 << 30;
  to->warp = 32;
  to->threads = 1024;
  to->major = 9;
  to->minor = 0;
  return 0;
}
int cudaGetDeviceProperties_v2(struct Properties* to, int device) {
  return cudaGetDeviceProperties(to, device);
}
int cudaDeviceGetAttribute(int* to, int what, int device) {
  *to = attribute(what);
  return device < look() ? 0 : k_invalid_device;
}
const char* cudaGetErrorString(int error) {
  return error == k_invalid_device ? "invalid device ordinal"
         : error == k_no_device    ? "no CUDA-capable device is detected"
         : error == 0              ? "no error"
                                   : "operation not supported";
}
const char* cudaGetErrorName(int error) { return cudaGetErrorString(error); }
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaStreamSynchronize(void* stream) { return (void)stream, 0; }
int cudaStreamQuery(void* stream) { return (void)stream, 0; }
int cudaStreamIsCapturing(void* stream, int* to) { return (void)stream, *to = 0, 0; }
int cudaThreadExchangeStreamCaptureMode(int* mode) { return (void)mode, 0; }
int cudaDeviceCanAccessPeer(int* to, int device, int peer) {
  return (void)device, (void)peer, *to = 0, 0;
}
int cudaDeviceGetStreamPriorityRange(int* least, int* most) { return *least = *most = 0, 0; }
int cudaMemGetInfo(size_t* available, size_t* all) { return *available = *all = (size_t)1 << 30, 0; }
int cudaMalloc(void** to, size_t bytes) { return *to = malloc(bytes), 0; }
int cudaFree(void* memory) { return free(memory), 0; }
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  (void)kind, (void)stream;
  memcpy(to, from, bytes);
  return 0;
}
int cudaEventCreateWithFlags(void** to, unsigned flags) { return (void)flags, *to = malloc(1), 0; }
int cudaEventRecord(void* event, void* stream) { return (void)event, (void)stream, 0; }
int cudaEventQuery(void* event) { return (void)event, 0; }
int cudaEventSynchronize(void* event) { return (void)event, 0; }
int cudaEventDestroy(void* event) { return free(event), 0; }

// Of the driver's functions, none of which is needed, so much that they are found.
static int nothing(void) { return 0; }
int cudaGetDriverEntryPointByVersion(const char* name, void** to, unsigned version,
                                     unsigned long long flags, int* result) {
  (void)name, (void)version, (void)flags;
  *to = (void*)nothing;
  if (result != NULL) {
    *result = 0;
  }
  return 0;
}

// Kernels, as nvcc has them told to the runtime.
void** __cudaRegisterFatBinary(void* binary) { return (void)binary, malloc(sizeof(void*)); }
void __cudaRegisterFatBinaryEnd(void** handle) { (void)handle; }
void __cudaUnregisterFatBinary(void** handle) { (void)handle; }
char __cudaInitModule(void** handle) { return (void)handle, 1; }
unsigned __cudaPushCallConfiguration(void) { return 0; }
int __cudaPopCallConfiguration(void) { return 0; }
int cudaLaunchKernel(void) { return 0; }
