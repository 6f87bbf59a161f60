#include "tests/cuda_on_cpu/runtime.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <sys/mman.h>

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

namespace {

using trainer::CudaGpu;
using trainer::CudaStreamHandle;

constexpr std::size_t k_memory = std::size_t{256} << 20; ///< Of a GPU.
constexpr std::size_t k_alignment = 256;                 ///< And so much between allocations.
constexpr int k_out_of_memory = 2;
constexpr int k_no_device = 100;
constexpr int k_old_driver = 35;
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

struct EventState {
  bool has_passed = false;
  struct Queue* queue = nullptr;
  int gpu = 0;
};
using EventHandle = std::shared_ptr<EventState>;

struct Work {
  std::function<void()> run;
  EventHandle passes; ///< One that is recorded here,
  EventHandle held;   ///< or that is waited for.
};

struct Queue {
  int gpu = 0;
  std::deque<Work> work;
};

struct World {
  std::recursive_mutex mutex;
  std::map<int, Gpu> gpus;
  std::set<Queue*> queues;
  std::set<EventHandle*> events;
  std::map<const std::byte*, std::size_t> pinned;
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

void run_until(const EventState& event);

/// The stream's next piece of work; false where there is none.
bool run_next(Queue& queue) {
  if (queue.work.empty()) {
    return false;
  }
  const Work work = std::move(queue.work.front());
  queue.work.pop_front();
  if (work.held) {
    run_until(*work.held);
  }
  if (work.run) {
    const Opened opened(gpu_of(queue.gpu));
    work.run();
  }
  if (work.passes) {
    work.passes->has_passed = true;
  }
  return true;
}

void run_until(const EventState& event) {
  while (!event.has_passed) {
    if (!run_next(*event.queue)) {
      fail("an event that no stream comes to");
    }
  }
}

void run_all(int gpu) {
  for (Queue* queue : world().queues) {
    while (queue->gpu == gpu && run_next(*queue)) {
    }
  }
}

Queue& queue_of(const CudaStreamHandle& stream) {
  auto* queue = static_cast<Queue*>(stream.stream);
  if (world().queues.count(queue) == 0 || queue->gpu != stream.gpu) {
    fail("work for a stream that there is not");
  }
  return *queue;
}

EventHandle& event_of(void* event) {
  auto* handle = static_cast<EventHandle*>(event);
  if (world().events.count(handle) == 0) {
    fail("an event that there is not");
  }
  return *handle;
}

bool is_pinned(const void* at, std::size_t bytes) {
  const auto* byte = static_cast<const std::byte*>(at);
  auto it = world().pinned.upper_bound(byte);
  if (it == world().pinned.begin()) {
    return false;
  }
  --it;
  return byte + bytes <= it->first + it->second;
}

void text(int error, char* to, std::size_t size) {
  const char* what = error == k_out_of_memory ? "out of memory"
                     : error == k_no_device   ? "no CUDA-capable device is detected"
                     : error == k_old_driver
                         ? "CUDA driver version is insufficient for CUDA runtime version"
                         : "invalid argument";
  (void)std::snprintf(to, size, "%s", what);
}

int versions(int* of_driver, int* runtime) {
  *of_driver = driver();
  *runtime = k_version;
  return 0;
}

int count(int* found) {
  *found = driver() >= k_version ? gpus() : 0;
  return driver() < k_version ? k_old_driver : *found == 0 ? k_no_device : 0;
}

int about(int index, CudaGpu* to) {
  const std::lock_guard lock(world().mutex);
  const Gpu& gpu = gpu_of(index);
  *to = {};
  (void)std::snprintf(to->name, sizeof to->name, "a CPU in a GPU's place");
  to->major = 9;
  to->multiprocessors = 1;
  to->memory = k_memory;
  to->free = k_memory - gpu.used;
  return 0;
}

int allocate(int index, std::size_t bytes, void** memory) {
  const std::lock_guard lock(world().mutex);
  Gpu& gpu = gpu_of(index);
  const std::size_t size = (bytes / k_alignment + 2) * k_alignment;
  std::size_t at = 0;
  for (const auto& [offset, taken] : gpu.taken) { // The first gap that is wide enough.
    if (offset - at >= size) {
      break;
    }
    at = offset + taken;
  }
  if (at + size > k_memory) {
    return k_out_of_memory;
  }
  gpu.taken[at] = size;
  gpu.used = std::max(gpu.used, at + size);
  const Opened opened(gpu);
  ASAN_UNPOISON_MEMORY_REGION(gpu.memory + at, size);
  std::memset(gpu.memory + at, 0xff, size);
  ASAN_POISON_MEMORY_REGION(gpu.memory + at + bytes, size - bytes);
  *memory = gpu.memory + at;
  return 0;
}

int release(int index, void* memory) {
  const std::lock_guard lock(world().mutex);
  run_all(index);
  Gpu& gpu = gpu_of(index);
  const auto it =
      gpu.taken.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - gpu.memory));
  if (it == gpu.taken.end()) {
    fail("memory is given back that was not given out");
  }
  ASAN_POISON_MEMORY_REGION(gpu.memory + it->first, it->second);
  gpu.taken.erase(it);
  return 0;
}

int allocate_pinned(std::size_t bytes, void** memory) {
  const std::lock_guard lock(world().mutex);
  auto* room = new std::byte[bytes];
  world().pinned[room] = bytes;
  *memory = room;
  return 0;
}

int free_pinned(void* memory) {
  const std::lock_guard lock(world().mutex);
  for (const auto& [index, gpu] : world().gpus) {
    run_all(index);
  }
  auto* room = static_cast<std::byte*>(memory);
  if (world().pinned.erase(room) != 1) {
    fail("pinned memory is given back that was not given out");
  }
  delete[] room;
  return 0;
}

int make_stream(int index, CudaStreamHandle* stream) {
  const std::lock_guard lock(world().mutex);
  auto* queue = new Queue{index, {}};
  world().queues.insert(queue);
  void* partial = nullptr;
  const int error = allocate(index, trainer::k_cuda_partials * sizeof(double), &partial);
  *stream = {index, queue, static_cast<double*>(partial)};
  return error;
}

int destroy_stream(const CudaStreamHandle* stream) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = queue_of(*stream);
  while (run_next(queue)) {
  }
  world().queues.erase(&queue);
  delete &queue;
  return release(stream->gpu, stream->partial);
}

int record(const CudaStreamHandle* stream, void** event) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = queue_of(*stream);
  auto* handle = new EventHandle(std::make_shared<EventState>());
  (*handle)->queue = &queue;
  (*handle)->gpu = stream->gpu;
  queue.work.push_back({nullptr, *handle, nullptr});
  world().events.insert(handle);
  *event = handle;
  return 0;
}

int destroy_event(void* event) {
  const std::lock_guard lock(world().mutex);
  EventHandle* handle = &event_of(event);
  world().events.erase(handle);
  delete handle;
  return 0;
}

int has_passed(void* event, int* passed) {
  const std::lock_guard lock(world().mutex);
  const EventHandle state = event_of(event);
  *passed = state->has_passed ? 1 : 0;
  if (!state->has_passed) {
    run_next(*state->queue); // Whoever asks often enough gets there.
  }
  return 0;
}

int wait(void* event) {
  const std::lock_guard lock(world().mutex);
  const EventHandle state = event_of(event);
  run_until(*state);
  return 0;
}

int hold(const CudaStreamHandle* stream, void* event) {
  const std::lock_guard lock(world().mutex);
  queue_of(*stream).work.push_back({nullptr, nullptr, event_of(event)});
  return 0;
}

int copy(const CudaStreamHandle* stream, const void* from, void* to, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = queue_of(*stream);
  const Gpu& gpu = gpu_of(stream->gpu);
  bool waits = false;
  for (const void* side : {from, static_cast<const void*>(to)}) {
    for (const auto& [index, other] : world().gpus) {
      if (index != stream->gpu && other.holds(side)) {
        fail("a copy of another GPU's memory");
      }
    }
    waits = waits || (!gpu.holds(side) && !is_pinned(side, bytes));
  }
  queue.work.push_back({[=] { std::memcpy(to, from, bytes); }, nullptr, nullptr});
  while (waits && run_next(queue)) {
  }
  return 0;
}

int clear(const CudaStreamHandle* stream, void* memory, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  if (!gpu_of(stream->gpu).holds(memory)) {
    fail("what is to be cleared is not this GPU's memory");
  }
  queue_of(*stream).work.push_back({[=] { std::memset(memory, 0, bytes); }, nullptr, nullptr});
  return 0;
}

} // namespace

void put(const CudaStreamHandle& stream, std::function<void()> work) {
  const std::lock_guard lock(world().mutex);
  queue_of(stream).work.push_back({std::move(work), nullptr, nullptr});
}

std::size_t live() {
  const std::lock_guard lock(world().mutex);
  std::size_t all = world().queues.size() + world().events.size() + world().pinned.size();
  for (const auto& [index, gpu] : world().gpus) {
    all += gpu.taken.size();
  }
  return all;
}

void set_runtime(trainer::DtrainCuda& table) {
  table.text = text;
  table.versions = versions;
  table.count = count;
  table.about = about;
  table.allocate = allocate;
  table.free = release;
  table.allocate_pinned = allocate_pinned;
  table.free_pinned = free_pinned;
  table.make_stream = make_stream;
  table.destroy_stream = destroy_stream;
  table.record = record;
  table.destroy_event = destroy_event;
  table.has_passed = has_passed;
  table.wait = wait;
  table.hold = hold;
  table.copy = copy;
  table.clear = clear;
}

} // namespace cuda_on_cpu
