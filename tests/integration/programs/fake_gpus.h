// The GPUs of fake_cudart.c and fake_driver.c: DTRAIN_FAKE_GPUS of them, "fake GPU 0" and so on, of
// which CUDA_VISIBLE_DEVICES shows some: by index or UUID ("GPU-" and its number in hexadecimal, 16
// times), up to the first that is not one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { k_most = 16, k_invalid_device = 101, k_no_device = 100 };

static int shown[k_most];
static int count = -1;

static int device_of(const char* name, int gpus) {
  for (int gpu = 0; gpu < gpus; ++gpu) {
    char uuid[sizeof "GPU-" + 8];
    char index[8];
    snprintf(uuid, sizeof uuid, "GPU-%02x%02x", gpu, gpu);
    snprintf(index, sizeof index, "%d", gpu);
    if (strcmp(name, index) == 0 || strncmp(name, uuid, strlen(uuid)) == 0) {
      return gpu;
    }
  }
  return -1;
}

/// How many are shown.
static int look(void) {
  if (count >= 0) {
    return count;
  }
  const char* text = getenv("DTRAIN_FAKE_GPUS");
  const int gpus = text == NULL ? 0 : atoi(text);
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  count = 0;
  if (visible == NULL) {
    for (; count < gpus; ++count) {
      shown[count] = count;
    }
    return count;
  }
  char* names = strdup(visible);
  char* rest = NULL;
  for (char* name = strtok_r(names, ",", &rest); name != NULL && count < k_most;
       name = strtok_r(NULL, ",", &rest)) {
    const int gpu = device_of(name, gpus);
    if (gpu < 0) {
      break;
    }
    shown[count++] = gpu;
  }
  free(names);
  return count;
}

/// Of cudaDeviceGetAttribute() and cuDeviceGetAttribute(), which number alike.
static int attribute(int what) {
  switch (what) {
  case 75: // Compute capability, major,
    return 9;
  case 76: // and minor.
    return 0;
  case 10: // A warp's threads.
    return 32;
  case 102: // Virtual memory, which XLA asks for.
    return 1;
  default:
    return what < 80 ? 1024 : 0; // Sizes; then capabilities.
  }
}
