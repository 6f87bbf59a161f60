#include "tests/cuda_on_cpu/runtime.h"

#include "trainer/device/cuda/matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
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
constexpr std::size_t k_workspace = 4096;
constexpr int k_out_of_memory = 2;
constexpr int k_no_device = 100;
constexpr int k_old_driver = 35;
constexpr int k_illegal_address = 700;
constexpr int k_version = 13000;

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::atomic<int> put_graphs{0};

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
  std::function<bool()> run; ///< Whether it is done; else it is to be asked again.
  EventHandle passes;        ///< One that is recorded here,
  EventHandle held;          ///< or that is waited for.
};

struct Queue {
  int gpu = 0;
  std::deque<Work> work;
  bool is_noting = false; ///< Kernels for a graph.
  std::vector<std::function<bool()>> noted;
};

struct Graph {
  int gpu;
  std::vector<std::function<bool()>> kernels;
};

struct World {
  std::mutex mutex;
  std::map<int, Gpu> gpus;
  std::set<Queue*> queues;
  std::set<EventHandle*> events;
  std::set<Graph*> graphs;
  std::map<const std::byte*, std::size_t> pinned;
  int kernels = 0; ///< Carried out.
  int error = 0;   ///< Of all that is done from now on.
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

Queue& queue_of(const CudaStreamHandle& stream, bool is_kernel = false) {
  auto* queue = static_cast<Queue*>(stream.stream);
  if (world().queues.count(queue) == 0 || queue->gpu != stream.gpu) {
    fail("work for a stream that there is not");
  }
  if (queue->is_noting && !is_kernel) {
    fail("something else than a kernel is put on a stream whose kernels are noted");
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

/// A kernel; the one that fails does nothing.
std::function<bool()> kernel_of(std::function<void()> work) {
  return [work = std::move(work)] {
    if (++world().kernels == number("DTRAIN_FAKE_FAULT", 0)) {
      world().error = k_illegal_address;
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

void text(int error, char* to, std::size_t size) {
  const char* what = error == k_out_of_memory ? "out of memory"
                     : error == k_no_device   ? "no CUDA-capable device is detected"
                     : error == k_old_driver
                         ? "CUDA driver version is insufficient for CUDA runtime version"
                     : error == k_illegal_address ? "an illegal memory access was encountered"
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
  to->major = number("DTRAIN_FAKE_COMPUTE", 9);
  to->multiprocessors = 1;
  to->hertz = 1e9;
  to->memory = k_memory;
  to->free = k_memory - gpu.used;
  const char* uuid = std::getenv("DTRAIN_FAKE_UUID"); // Else as if every process had its own GPUs.
  (void)std::snprintf(reinterpret_cast<char*>(to->uuid), sizeof to->uuid, "%.8s %d",
                      uuid == nullptr ? std::to_string(getpid()).c_str() : uuid, index);
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
  Lock lock(world().mutex);
  run_all(lock, index);
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
  Lock lock(world().mutex);
  for (int index = 0; index < gpus(); ++index) {
    run_all(lock, index);
  }
  auto* room = static_cast<std::byte*>(memory);
  if (world().pinned.erase(room) != 1) {
    fail("pinned memory is given back that was not given out");
  }
  delete[] room;
  return 0;
}

int make_stream(int index, CudaStreamHandle* stream) {
  void* partial = nullptr;
  int error = allocate(index, trainer::k_cuda_partials * sizeof(double), &partial);
  void* workspace = nullptr;
  const std::size_t bytes = trainer::find_blas() == nullptr ? 0 : k_workspace;
  if (error == 0 && bytes > 0) {
    error = allocate(index, bytes, &workspace);
  }
  const Lock lock(world().mutex);
  auto* queue = new Queue;
  queue->gpu = index;
  world().queues.insert(queue);
  *stream = {index, queue, static_cast<double*>(partial), workspace, bytes};
  return error;
}

int destroy_stream(const CudaStreamHandle* stream) {
  {
    Lock lock(world().mutex);
    Queue& queue = queue_of(*stream);
    run_until(lock, queue, [] { return false; });
    world().queues.erase(&queue);
    delete &queue;
  }
  const int error = stream->workspace == nullptr ? 0 : release(stream->gpu, stream->workspace);
  return error != 0 ? error : release(stream->gpu, stream->partial);
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
    if (run_next(*state->queue) == Step::blocked) { // Whoever asks often enough gets there.
      advance_all();
    }
  }
  return world().error;
}

int wait(void* event) {
  Lock lock(world().mutex);
  const EventHandle state = event_of(event);
  run_until(lock, *state->queue, [&] { return state->has_passed; });
  if (!state->has_passed) {
    fail("an event that no stream comes to");
  }
  return world().error;
}

int hold(const CudaStreamHandle* stream, void* event) {
  const std::lock_guard lock(world().mutex);
  queue_of(*stream).work.push_back({nullptr, nullptr, event_of(event)});
  return 0;
}

int copy(const CudaStreamHandle* stream, const void* from, void* to, std::size_t bytes) {
  Lock lock(world().mutex);
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
  queue.work.push_back({once([=] { std::memcpy(to, from, bytes); }), nullptr, nullptr});
  run_until(lock, queue, [&] { return !waits; });
  return world().error;
}

int clear(const CudaStreamHandle* stream, void* memory, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  if (!gpu_of(stream->gpu).holds(memory)) {
    fail("what is to be cleared is not this GPU's memory");
  }
  queue_of(*stream).work.push_back(
      {once([=] { std::memset(memory, 0, bytes); }), nullptr, nullptr});
  return 0;
}

int begin_graph(const CudaStreamHandle* stream) {
  const Lock lock(world().mutex);
  queue_of(*stream).is_noting = true;
  return 0;
}

int end_graph(const CudaStreamHandle* stream, void** graph) {
  const Lock lock(world().mutex);
  Queue& queue = queue_of(*stream, true);
  auto* made = new Graph{queue.gpu, std::exchange(queue.noted, {})};
  world().graphs.insert(made);
  queue.is_noting = false;
  *graph = made;
  return 0;
}

int put_graph(const CudaStreamHandle* stream, void* graph) {
  const Lock lock(world().mutex);
  Queue& queue = queue_of(*stream);
  auto* known = static_cast<Graph*>(graph);
  if (world().graphs.count(known) == 0 || known->gpu != queue.gpu) {
    fail("a graph that there is not, or of another GPU");
  }
  ++put_graphs;
  for (const auto& kernel : known->kernels) {
    queue.work.push_back({kernel, nullptr, nullptr});
  }
  return 0;
}

int destroy_graph(void* graph) {
  const Lock lock(world().mutex);
  if (world().graphs.erase(static_cast<Graph*>(graph)) != 1) {
    fail("a graph is destroyed that there is not");
  }
  delete static_cast<Graph*>(graph);
  return 0;
}

} // namespace

int graphs_put() { return put_graphs; }

void put(const CudaStreamHandle& stream, std::function<void()> work) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = queue_of(stream, true);
  if (queue.is_noting) {
    queue.noted.push_back(kernel_of(std::move(work)));
  } else {
    queue.work.push_back({kernel_of(std::move(work)), nullptr, nullptr});
  }
}

void put_until(const CudaStreamHandle& stream, std::function<bool()> work) {
  const std::lock_guard lock(world().mutex);
  queue_of(stream).work.push_back({std::move(work), nullptr, nullptr});
}

bool is_on_gpu(int gpu, const void* memory) {
  const std::lock_guard lock(world().mutex);
  return gpu_of(gpu).holds(memory);
}

std::size_t live() {
  const std::lock_guard lock(world().mutex);
  std::size_t all =
      world().queues.size() + world().events.size() + world().graphs.size() + world().pinned.size();
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
  table.begin_graph = begin_graph;
  table.end_graph = end_graph;
  table.put_graph = put_graph;
  table.destroy_graph = destroy_graph;
}

} // namespace cuda_on_cpu
