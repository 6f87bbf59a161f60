#include "tests/cuda_on_cpu/runtime.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "trainer/device/cuda/stream.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, size) ((void)(memory), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(memory, size) ((void)(memory), (void)(size))
#endif

namespace cuda_on_cpu {
namespace {

using Queue = CUstream_st;

struct EventState {
  bool has_passed = false;
  Queue* queue = nullptr;
};
using EventHandle = std::shared_ptr<EventState>;

struct Work {
  std::function<bool()> run; ///< Whether it is done; else it is to be asked again.
  EventHandle passes;        ///< One that is recorded here,
  EventHandle held;          ///< or that is waited for.
};

} // namespace
} // namespace cuda_on_cpu

struct CUstream_st {
  int gpu = 0;
  std::deque<cuda_on_cpu::Work> work;
  bool is_noting = false; ///< Kernels for a graph.
  std::vector<std::function<bool()>> noted;
};
struct CUevent_st {
  cuda_on_cpu::EventHandle state; ///< Null: it was recorded nowhere yet.
};
struct CUgraph_st {
  int gpu;
  std::vector<std::function<bool()>> kernels;
};
struct CUgraphExec_st : CUgraph_st {};

namespace cuda_on_cpu {

void fail(const char* what) {
  (void)std::fprintf(stderr, "cuda_on_cpu: %s\n", what);
  std::abort();
}

namespace {

using trainer::CudaStreamHandle;

constexpr std::size_t k_memory = std::size_t{256} << 20; ///< Of a GPU.
constexpr std::size_t k_alignment = 256;                 ///< And so much between allocations.
constexpr int k_version = 13000;

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

int gpus() { return number("DTRAIN_FAKE_GPUS", 2); }
int driver() { return number("DTRAIN_FAKE_DRIVER", k_version); }

struct Gpu {
  std::byte* memory = nullptr;
  std::size_t used = 0;                     ///< Up to here it has been given out.
  std::map<std::size_t, std::size_t> taken; ///< Offset and size.

  bool holds(const void* at) const {
    const auto* byte = static_cast<const std::byte*>(at);
    return memory != nullptr && byte >= memory && byte < memory + k_memory;
  }
};

struct World {
  std::mutex mutex;
  std::map<int, Gpu> gpus;
  std::set<Queue*> queues;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> noted;
  std::set<cudaGraphExec_t> graphs;
  std::map<const std::byte*, std::size_t> pinned;
  std::map<std::string, int> calls; ///< Of what a step may consist of; "kernel": those put there.
  int kernels = 0;                  ///< Carried out.
  cudaError_t error = cudaSuccess;  ///< Of all that is done from now on.
};

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

/// While it lives, this GPU's memory can be touched.
class Opened {
 public:
  explicit Opened(const Gpu& gpu) : gpu_(gpu) { protect(PROT_READ | PROT_WRITE); }
  ~Opened() { protect(PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  void protect(int how) const {
    if (gpu_.used > 0) {
      mprotect(gpu_.memory, gpu_.used, how);
    }
  }
  const Gpu& gpu_;
};

enum class Step : std::uint8_t { none, done, blocked }; ///< blocked: by another process or thread.

/// The stream's next piece of work.
Step run_next(Queue& queue) {
  if (queue.work.empty()) {
    return Step::none;
  }
  const Work work = queue.work.front();
  if (work.held && !work.held->has_passed) {
    const Step step = run_next(*work.held->queue);
    if (step == Step::none) {
      fail("an event that no stream comes to");
    }
    return step;
  }
  if (work.run) {
    const Opened opened(gpu_of(queue.gpu));
    if (!work.run()) {
      return Step::blocked;
    }
  }
  if (work.passes) {
    work.passes->has_passed = true;
  }
  queue.work.pop_front();
  return Step::done;
}

/// All streams, as far as they can: what one waits for may be on another.
void advance_all() {
  for (Queue* queue : world().queues) {
    while (run_next(*queue) == Step::done) {
    }
  }
}

using Lock = std::unique_lock<std::mutex>;

/// Carries out `queue`'s work until `is_enough`, letting others in while it is blocked.
template <typename Enough>
void run_until(Lock& lock, Queue& queue, const Enough& is_enough) {
  while (!is_enough()) {
    const Step step = run_next(queue);
    if (step == Step::none) {
      return;
    }
    if (step == Step::blocked) {
      advance_all();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      lock.lock();
    }
  }
}

void run_all(Lock& lock, int gpu) {
  const auto some = [&] {
    const auto& queues = world().queues;
    return std::find_if(queues.begin(), queues.end(), [&](const Queue* queue) {
      return queue->gpu == gpu && !queue->work.empty();
    });
  };
  for (auto it = some(); it != world().queues.end(); it = some()) {
    Queue* const queue = *it; // Another thread may take its stream away meanwhile.
    run_until(lock, *queue, [&] { return world().queues.count(queue) == 0; });
  }
}

thread_local int current = 0; ///< The GPU that this thread's calls are of.

Queue& queue_of(cudaStream_t queue, bool is_kernel = false) {
  if (world().queues.count(queue) == 0 || queue->gpu != current) {
    fail("work for a stream that there is not, or of another GPU than the thread's");
  }
  if (queue->is_noting && !is_kernel) {
    fail("something else than a kernel is put on a stream whose kernels are noted");
  }
  return *queue;
}

EventHandle& event_of(cudaEvent_t event) {
  if (world().events.count(event) == 0) {
    fail("an event that there is not");
  }
  return event->state;
}

const EventHandle& recorded(cudaEvent_t event) {
  const EventHandle& state = event_of(event);
  if (state == nullptr) {
    fail("an event that was recorded nowhere");
  }
  return state;
}

bool is_pinned(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  auto it = world().pinned.upper_bound(byte);
  if (it == world().pinned.begin()) {
    return false;
  }
  --it;
  return byte < it->first + it->second;
}

/// A kernel; the one that fails does nothing.
std::function<bool()> kernel_of(std::function<void()> work) {
  return [work = std::move(work)] {
    if (++world().kernels == number("DTRAIN_FAKE_FAULT", 0)) {
      world().error = cudaErrorIllegalAddress;
    } else {
      work();
    }
    return true;
  };
}

std::function<bool()> once(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return true;
  };
}

} // namespace

int calls(const std::string& name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}

void put(const CudaStreamHandle& stream, std::function<void()> work) {
  const std::lock_guard lock(world().mutex);
  current = stream.gpu; // As launch() does on a GPU.
  Queue& queue = queue_of(stream.stream, true);
  ++world().calls[queue.is_noting ? "noted" : "kernel"];
  if (queue.is_noting) {
    queue.noted.push_back(kernel_of(std::move(work)));
  } else {
    queue.work.push_back({kernel_of(std::move(work)), nullptr, nullptr});
  }
}

void put_until(const CudaStreamHandle& stream, std::function<bool()> work) {
  const std::lock_guard lock(world().mutex);
  current = stream.gpu;
  queue_of(stream.stream).work.push_back({std::move(work), nullptr, nullptr});
}

bool is_on_gpu(int gpu, const void* memory) {
  const std::lock_guard lock(world().mutex);
  return gpu_of(gpu).holds(memory);
}

std::size_t live() {
  const std::lock_guard lock(world().mutex);
  std::size_t all = world().queues.size() + world().events.size() + world().noted.size() +
                    world().graphs.size() + world().pinned.size();
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
  case cudaErrorIllegalAddress:
    return "an illegal memory access was encountered";
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
  properties->multiProcessorCount = 1;
  const char* uuid = std::getenv("DTRAIN_FAKE_UUID"); // Else as if every process had its own GPUs.
  (void)std::snprintf(properties->uuid.bytes, sizeof properties->uuid, "%.8s %d",
                      uuid == nullptr ? std::to_string(getpid()).c_str() : uuid, device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
  *value = 1'000'000; // kHz
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(world().mutex);
  gpu_of(device);
  current = device;
  return cudaSuccess;
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

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  const auto& all = world().gpus;
  const bool is_on_one = std::any_of(all.begin(), all.end(),
                                     [&](const auto& gpu) { return gpu.second.holds(memory); });
  attributes->type = is_on_one           ? cudaMemoryTypeDevice
                     : is_pinned(memory) ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  *stream = new Queue;
  (*stream)->gpu = current;
  world().queues.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(world().mutex);
  ++world().calls[__func__];
  run_until(lock, queue_of(stream), [] { return false; });
  return world().error;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  if (!queue_of(stream).work.empty()) {
    fail("a stream goes before what is on it is done");
  }
  world().queues.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  queue_of(stream).work.push_back({nullptr, nullptr, recorded(event)});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  Queue& queue = queue_of(stream);
  for (const auto& [index, gpu] : world().gpus) {
    if (index != current && (gpu.holds(from) || gpu.holds(to))) {
      fail("a copy of another GPU's memory");
    }
  }
  queue.work.push_back({once([=] { std::memcpy(to, from, bytes); }), nullptr, nullptr});
  return world().error;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  if (!gpu_of(current).holds(memory)) {
    fail("what is to be cleared is not this GPU's memory");
  }
  queue_of(stream).work.push_back(
      {once([=] { std::memset(memory, value, bytes); }), nullptr, nullptr});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  *event = new CUevent_st;
  world().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  Queue& queue = queue_of(stream);
  EventHandle& state = event_of(event);
  state = std::make_shared<EventState>();
  state->queue = &queue;
  queue.work.push_back({nullptr, state, nullptr});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(world().mutex);
  const EventHandle state = recorded(event);
  const bool has_passed = state->has_passed;
  if (!has_passed && run_next(*state->queue) == Step::blocked) {
    advance_all(); // Whoever asks often enough gets there.
  }
  return world().error != cudaSuccess ? world().error
         : has_passed                 ? cudaSuccess
                                      : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(world().mutex);
  ++world().calls[__func__];
  const EventHandle state = recorded(event);
  run_until(lock, *state->queue, [&] { return state->has_passed; });
  if (!state->has_passed) {
    fail("an event that no stream comes to");
  }
  return world().error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  event_of(event).reset();
  world().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const std::lock_guard lock(world().mutex);
  queue_of(stream).is_noting = true;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = queue_of(stream, true);
  *graph = new CUgraph_st{queue.gpu, std::exchange(queue.noted, {})};
  world().noted.insert(*graph);
  queue.is_noting = false;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  if (world().noted.count(graph) == 0) {
    fail("a graph that there is not");
  }
  *made = new CUgraphExec_st{*graph};
  world().graphs.insert(*made);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(world().mutex);
  if (world().noted.erase(graph) != 1) {
    fail("a graph is destroyed that there is not");
  }
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  Queue& queue = queue_of(stream);
  if (world().graphs.count(graph) == 0 || graph->gpu != queue.gpu) {
    fail("a graph that there is not, or of another GPU");
  }
  for (const auto& kernel : graph->kernels) {
    queue.work.push_back({kernel, nullptr, nullptr});
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const std::lock_guard lock(world().mutex);
  if (world().graphs.erase(graph) != 1) {
    fail("a graph is destroyed that there is not");
  }
  delete graph;
  return cudaSuccess;
}
