#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "tests/cuda_on_cpu/world.h"

namespace cuda_on_cpu {
namespace {

using trainer::CudaStreamHandle;

/// blocked: by another process or thread, or it takes longer.
enum class Step : std::uint8_t { none, done, blocked };

/// What is carried out before the mutex is let go may touch this GPU's memory.
void open(int gpu) { world().open.try_emplace(gpu, gpu_of(gpu)); }

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
  const double begins =
      std::max({queue.free_at, work.put_at, work.held ? work.held->passed_at : 0.0});
  double ends = begins + work.seconds;
  if (trainer::now() < ends) {
    return Step::blocked;
  }
  if (work.run) {
    open(queue.gpu);
    if (!work.run()) {
      queue.work.front().waits = true;
      return Step::blocked;
    }
    ends = work.waits ? trainer::now() : ends;
  }
  queue.free_at = ends;
  if (work.passes) {
    work.passes->has_passed = true;
    work.passes->passed_at = ends;
  }
  queue.work.pop_front();
  return Step::done;
}

/// Something has been put there.
void go_on(Queue& queue) {
  if (queue.is_first || number("DTRAIN_FAKE_EAGER", 0) == 0) {
    return;
  }
  while (run_next(queue) == Step::done) {
  }
  world().open.clear();
}

/// All streams, as far as they can: what one waits for may be on another.
void advance_all() {
  for (Queue* queue : world().queues) {
    while (run_next(*queue) == Step::done) {
    }
  }
}

/// Who asks in a loop would have the mutex again before those that wait for it.
void let_others_in(Lock& lock) {
  world().open.clear();
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  lock.lock();
}

/// Carries out `queue`'s work until `is_enough`, letting others in while it is blocked.
template <typename Enough>
void run_until(Lock& lock, Queue& queue, const Enough& is_enough) {
  while (!is_enough()) {
    const Step step = run_next(queue);
    if (step == Step::none) {
      break;
    }
    if (step == Step::blocked) {
      advance_all();
      let_others_in(lock);
    }
  }
  world().open.clear();
}

Queue& queue_of(cudaStream_t queue, bool may_be_noted = false) {
  if (world().queues.count(queue) == 0 || queue->gpu != current) {
    fail("work for a stream that there is not, or of another GPU than the thread's");
  }
  if (queue->is_noting && !may_be_noted) {
    fail("what no graph may hold is put on a stream whose work is noted");
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

/// Seconds of GPU number `index` in a list of microseconds, "200,600"; none: nobody says.
std::optional<double> seconds_of(const char* variable, int index) {
  const char* list = std::getenv(variable);
  for (int before = 0; list != nullptr && before < index; ++before) {
    list = std::strchr(list, ',');
    list = list == nullptr ? nullptr : list + 1;
  }
  return list == nullptr ? std::nullopt : std::optional(1e-6 * std::atof(list));
}

/// That the next kernel of a GPU takes, or 0: half to one and a half times the GPU's own mean, or
/// the mean.
double kernel_seconds(int index) {
  const std::optional<double> mean = seconds_of("DTRAIN_FAKE_KERNEL_US", index);
  if (!mean || number("DTRAIN_FAKE_STEADY", 0) != 0) {
    return mean.value_or(0);
  }
  std::seed_seq seeds{static_cast<std::uint64_t>(number("DTRAIN_FAKE_SEED", 1)),
                      static_cast<std::uint64_t>(index), gpu_of(index).kernels++};
  std::minstd_rand random(seeds);
  return *mean * std::uniform_real_distribution<>(0.5, 1.5)(random);
}

/// That a copy takes on a GPU's stream: within its memory as long as within GPU 0's.
double copy_seconds(int index, int peer, bool is_within) {
  constexpr const char* k_times = "DTRAIN_FAKE_COPY_US";
  return is_within ? seconds_of(k_times, 0).value_or(0)
                   : std::max(seconds_of(k_times, index).value_or(0),
                              seconds_of(k_times, peer).value_or(0));
}

bool is_one_of(const std::map<const std::byte*, std::size_t>& ranges, const std::byte* at) {
  auto behind = ranges.upper_bound(at);
  return behind != ranges.begin() && at < std::prev(behind)->first + std::prev(behind)->second;
}

/// The host's, and not pinned.
bool is_pageable(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  return !is_one_of(world().pinned, at) && !is_one_of(world().registered, at) &&
         std::none_of(world().gpus.begin(), world().gpus.end(),
                      [&](const auto& gpu) { return gpu.second.holds(at); });
}

/// A kernel; the one that fails does nothing.
std::function<bool()> kernel_of(std::function<void()> work) {
  return [work = std::move(work)] {
    if (++world().kernels == number("DTRAIN_FAKE_FAULT", 0)) {
      world().error =
          static_cast<cudaError_t>(number("DTRAIN_FAKE_ERROR", cudaErrorIllegalAddress));
    } else if (number("DTRAIN_FAKE_IDLE", 0) == 0) {
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
    queue.work.push_back({kernel_of(std::move(work)), nullptr, nullptr, kernel_seconds(queue.gpu)});
    go_on(queue);
  }
}

void put_until(const CudaStreamHandle& stream, std::function<bool()> work) {
  const std::lock_guard lock(world().mutex);
  current = stream.gpu;
  queue_of(stream.stream).work.push_back({std::move(work), nullptr, nullptr});
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const std::lock_guard lock(world().mutex);
  *stream = new Queue;
  (*stream)->gpu = current;
  const auto& queues = world().queues;
  (*stream)->is_first = std::none_of(queues.begin(), queues.end(),
                                     [](const Queue* queue) { return queue->gpu == current; });
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
  Queue& queue = queue_of(stream);
  queue.work.push_back({nullptr, nullptr, recorded(event)});
  go_on(queue);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  Queue& queue = queue_of(stream);
  int peer = current;
  for (const auto& [index, gpu] : world().gpus) {
    if (index != current && (gpu.holds(from) || gpu.holds(to))) {
      if (world().peers.count({current, index}) == 0) {
        fail("a copy of the memory of another GPU, which this one does not reach");
      }
      peer = index;
    }
  }
  if (is_pageable(from) || is_pageable(to)) {
    ++world().calls["pageable"];
  }
  const auto copy = [=] {
    open(peer);
    if (bytes > 0) { // Of none, CUDA takes null.
      std::memcpy(to, from, bytes);
    }
  };
  const bool is_within = gpu_of(current).holds(from) && gpu_of(current).holds(to);
  queue.work.push_back({once(copy), nullptr, nullptr, copy_seconds(current, peer, is_within)});
  go_on(queue);
  return world().error;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  if (!gpu_of(current).holds(memory)) {
    fail("what is to be cleared is not this GPU's memory");
  }
  Queue& queue = queue_of(stream, true);
  const auto clear = once([=] { std::memset(memory, value, bytes); });
  if (queue.is_noting) {
    queue.noted.push_back(clear);
  } else {
    queue.work.push_back({clear, nullptr, nullptr});
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const std::lock_guard lock(world().mutex);
  ++world().calls[__func__];
  *event = new CUevent_st{nullptr, flags != cudaEventDisableTiming};
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
  state->gpu = queue.gpu;
  queue.work.push_back({nullptr, state, nullptr});
  go_on(queue);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(world().mutex);
  const EventHandle state = recorded(event);
  const bool has_passed = state->has_passed;
  // Where kernels take time, that of carrying them out here is no part of it: who asks once in a
  // while, as between two kernels that are put there, is told at once.
  constexpr int k_asked_in_passing = 30;
  const bool is_in_passing =
      ++state->asked < k_asked_in_passing && std::getenv("DTRAIN_FAKE_KERNEL_US") != nullptr;
  if (!has_passed && !is_in_passing && run_next(*state->queue) == Step::blocked) {
    advance_all(); // Whoever asks often enough gets there.
    let_others_in(lock);
  }
  world().open.clear();
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

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(world().mutex);
  const EventState& first = *recorded(begin);
  const EventState& last = *recorded(end);
  if (!begin->is_timed || !end->is_timed || !first.has_passed || !last.has_passed ||
      first.gpu != last.gpu) {
    fail("the time between events that have none, have not passed, or are of two GPUs");
  }
  *milliseconds = static_cast<float>(1e3 * (last.passed_at - first.passed_at));
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
    queue.work.push_back({kernel, nullptr, nullptr, kernel_seconds(queue.gpu)});
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
