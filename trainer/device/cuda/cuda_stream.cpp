#include "trainer/device/cuda/cuda_stream.h"

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/device/cuda/errors.h"
#include "trainer/device/cuda/kernels.h"

namespace trainer {

/// A pool of a GPU's events, so that a step creates none.
class EventPool {
 public:
  /// `flags`: of CUDA's events; with cudaEventDisableTiming they cost less.
  EventPool(int gpu, unsigned flags) : gpu_(gpu), flags_(flags) {}
  ~EventPool() {
    cudaSetDevice(gpu_);
    for (const cudaEvent_t event : spare_) {
      cudaEventDestroy(event);
    }
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  int gpu() const { return gpu_; }

  /// An event of this GPU, which is the thread's current device.
  cudaEvent_t take(const char* what) {
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        const cudaEvent_t event = spare_.back();
        spare_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, flags_), what);
    return event;
  }
  void give(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(event);
  }

 private:
  int gpu_;
  unsigned flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> spare_;
};

namespace {

bool is_launch_blocking() {
  const char* value = std::getenv(k_cuda_launch_blocking);
  return value != nullptr && std::string_view(value) == "1";
}

constexpr const char* k_some_work = "work on it (--cuda-launch-blocking names the kernel)";

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<EventPool> pool, const CudaStreamHandle& stream, const char* what)
      : pool_(std::move(pool)) {
    use_gpu(stream.gpu, what);
    event_ = pool_->take(what);
    if (const int error = cudaEventRecord(event_, stream.stream); error != cudaSuccess) {
      pool_->give(event_);
      check_cuda(error, what);
    }
  }
  ~CudaEvent() override { pool_->give(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool has_passed() const override {
    use_gpu(pool_->gpu(), k_some_work);
    const cudaError_t error = cudaEventQuery(event_);
    check_cuda(error == cudaErrorNotReady ? cudaSuccess : error, k_some_work);
    return error == cudaSuccess;
  }
  void wait() const override { wait_for(k_some_work); }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    check_cuda(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).get(), event_),
        "the time between two events");
    return 1e-3 * milliseconds;
  }
  /// `what` names the operation in an error.
  void wait_for(const char* what) const {
    use_gpu(pool_->gpu(), what);
    check_cuda(cudaEventSynchronize(event_), what);
  }
  cudaEvent_t get() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_ = nullptr;
};

/// While one lives, work put on the stream is captured into a graph, not executed.
class Capture {
 public:
  explicit Capture(const CudaStreamHandle& stream) : stream_(stream) {
    use_gpu(stream.gpu, k_begins);
    check_cuda(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal), k_begins);
  }
  ~Capture() {
    if (is_open_) {
      end();
      cudaGraphDestroy(noted_);
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraphExec_t finish() {
    cudaGraphExec_t made = nullptr;
    cudaError_t error = end();
    if (error == cudaSuccess) {
      error = cudaGraphInstantiate(&made, noted_, 0);
      cudaGraphDestroy(noted_);
    }
    check_cuda(error, "a graph's end");
    return made;
  }

 private:
  static constexpr const char* k_begins = "a graph's beginning";

  cudaError_t end() {
    is_open_ = false;
    const cudaError_t error = cudaSetDevice(stream_.gpu);
    return error != cudaSuccess ? error : cudaStreamEndCapture(stream_.stream, &noted_);
  }

  const CudaStreamHandle& stream_;
  cudaGraph_t noted_ = nullptr;
  bool is_open_ = true;
};

constexpr std::size_t k_most_graphs = 64;
constexpr const char* k_graph = "a graph";

} // namespace

EventPools::EventPools(int gpu)
    : plain(std::make_shared<EventPool>(gpu, cudaEventDisableTiming)),
      timed(std::make_shared<EventPool>(gpu, cudaEventDefault)) {}

CudaStream::CudaStream(GpuMemory& memory, EventPools events)
    : events_(std::move(events)), is_blocking_(is_launch_blocking()), memory_(memory),
      workspace_(memory), narrowed_(memory) {
  constexpr const char* k_what = "a stream";
  const int gpu = memory.gpu();
  use_gpu(gpu, k_what);
  handle_.gpu = gpu;
  handle_.workspace = &workspace_;
  handle_.narrowed = &narrowed_;
  void* partial = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&handle_.stream, cudaStreamNonBlocking), k_what);
  const auto ask = [&](cudaDeviceAttr attribute) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, attribute, gpu), k_what);
    return static_cast<std::size_t>(value);
  };
  handle_.most_shared = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  handle_.multiprocessors = ask(cudaDevAttrMultiProcessorCount);
  constexpr std::size_t k_arrivals = k_cuda_arrivals * sizeof(unsigned);
  check_cuda(cudaMalloc(&partial, k_cuda_partials * sizeof(double) + k_arrivals), k_what);
  handle_.partial = static_cast<double*>(partial);
  handle_.arrived = reinterpret_cast<unsigned*>(handle_.partial + k_cuda_partials);
  check_cuda(cudaMemsetAsync(handle_.arrived, 0, k_arrivals, handle_.stream), k_what);
}

CudaStream::~CudaStream() {
  forget();
  cudaSetDevice(handle_.gpu);
  cudaStreamSynchronize(handle_.stream);
  cudaStreamDestroy(handle_.stream);
  cudaFree(handle_.partial);
}

std::unique_ptr<Event> CudaStream::record() {
  return std::make_unique<CudaEvent>(events_.plain, handle_, "an event");
}

std::unique_ptr<Event> CudaStream::record_timed() {
  return std::make_unique<CudaEvent>(events_.timed, handle_, "a timed event");
}

void CudaStream::wait(const Event& event) {
  constexpr const char* k_what = "waiting for an event";
  use_gpu(handle_.gpu, k_what);
  narrowed_.forget();
  check_cuda(cudaStreamWaitEvent(handle_.stream, static_cast<const CudaEvent&>(event).get(), 0),
             k_what);
}

void CudaStream::copy(const void* from, void* to, std::size_t bytes) {
  constexpr const char* k_what = "a copy";
  use_gpu(handle_.gpu, k_what);
  narrowed_.forget();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_.stream), k_what);
  if (is_pageable(from) || is_pageable(to)) {
    check_cuda(cudaStreamSynchronize(handle_.stream), k_what);
  }
}

void CudaStream::clear(void* memory, std::size_t bytes) {
  constexpr const char* k_what = "clearing memory";
  use_gpu(handle_.gpu, k_what);
  narrowed_.forget();
  check_cuda(cudaMemsetAsync(memory, 0, bytes, handle_.stream), k_what);
}

void CudaStream::replay(const std::vector<std::uint64_t>& key, const std::function<void()>& put) {
  narrowed_.forget(); // A graph must not depend on copies made before it.
  if (is_blocking_) {
    put();
    return;
  }
  if (seen_changes_ != memory_.changes()) {
    forget();
    seen_changes_ = memory_.changes();
  }
  if (graphs_.size() >= k_most_graphs && graphs_.count(key) == 0) {
    put();
    return;
  }
  const auto [it, is_new] = graphs_.try_emplace(key, nullptr);
  if (is_new) {
    put();
    return;
  }
  if (it->second == nullptr) {
    Capture capture(handle_);
    put();
    it->second = capture.finish();
  }
  narrowed_.forget();
  use_gpu(handle_.gpu, k_graph);
  check_cuda(cudaGraphLaunch(it->second, handle_.stream), k_graph);
}

void CudaStream::check_put(int error, const char* kernel, bool has_forgotten) {
  if (!has_forgotten) {
    narrowed_.forget();
  }
  check_cuda(error, kernel);
  if (is_blocking_) {
    CudaEvent(events_.plain, handle_, kernel).wait_for(kernel);
  }
}

/// Graphs may refer to memory that has been freed.
void CudaStream::forget() {
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) {
      cudaGraphExecDestroy(graph);
    }
  }
  graphs_.clear();
}

const CudaStreamHandle* handle_of(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).handle();
}

void check_kernel(Stream& stream, int error, const char* kernel, bool has_forgotten) {
  static_cast<CudaStream&>(stream).check_put(error, kernel, has_forgotten);
}

} // namespace trainer
