// The plug-in's device, on top of CUDA's runtime.
#include "trainer/device/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/matmul.h"
#include "trainer/device/cuda/paged_memory.h"

namespace trainer {
namespace {

constexpr double k_gib = 1 << 30;
/// A data set may take one part in this many of free memory.
constexpr std::size_t k_parts_for_data = 4;
std::atomic<const CudaHost*> host = nullptr; ///< The trainer that loaded this plug-in.

[[noreturn]] void fail(const std::string& what) {
  host.load()->error(what.c_str());
  std::abort(); // Not reached: the host throws.
}
[[noreturn]] void refuse(const std::string& what) {
  host.load()->usage_error(what.c_str());
  std::abort();
}

const char* cuda_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

/// Advice for an error; empty if CUDA's own text is enough.
const char* advice(int error) {
  switch (error) {
  case cudaErrorECCUncorrectable:
    return "; the GPU's memory is faulty: reset it (nvidia-smi --gpu-reset), or hide it with "
           "CUDA_VISIBLE_DEVICES";
  case cudaErrorDevicesUnavailable:
    return "; another process has the GPU to itself (nvidia-smi shows its compute mode)";
  case cudaErrorLaunchFailure:
  case cudaErrorUnknown:
    return "; see dmesg for an Xid error of the GPU";
  default:
    return "";
  }
}

void check(int error, std::string_view what) {
  if (error != cudaSuccess) {
    fail(fmt::format("CUDA: {}: {}{}", what, cuda_text(error), advice(error)));
  }
}

/// Sets the thread's current device, to which CUDA's calls apply.
void use(int gpu, std::string_view what) { check(cudaSetDevice(gpu), what); }

/// 13000 → "13.0"
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

bool is_launch_blocking() {
  const char* value = std::getenv(k_cuda_launch_blocking);
  return value != nullptr && std::string_view(value) == "1";
}

/// Whether it is host memory that was not allocated by CUDA.
bool is_pageable(const void* memory) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, memory) != cudaSuccess ||
         attributes.type == cudaMemoryTypeUnregistered;
}

constexpr const char* k_some_work = "work on a GPU (--cuda-launch-blocking names the kernel)";

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
    check(cudaEventCreateWithFlags(&event, flags_), what);
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

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<EventPool> pool, const CudaStreamHandle& stream, const char* what)
      : pool_(std::move(pool)) {
    use(stream.gpu, what);
    event_ = pool_->take(what);
    if (const int error = cudaEventRecord(event_, stream.stream); error != cudaSuccess) {
      pool_->give(event_);
      check(error, what);
    }
  }
  ~CudaEvent() override { pool_->give(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool has_passed() const override {
    const cudaError_t error = cudaEventQuery(event_);
    check(error == cudaErrorNotReady ? cudaSuccess : error, k_some_work);
    return error == cudaSuccess;
  }
  void wait() const override { wait_for(k_some_work); }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).get(), event_),
          "the time between two events");
    return 1e-3 * milliseconds;
  }
  /// `what` names the operation in an error.
  void wait_for(const char* what) const { check(cudaEventSynchronize(event_), what); }
  cudaEvent_t get() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_ = nullptr;
};

/// While one lives, work put on the stream is captured into a graph, not executed.
class Capture {
 public:
  explicit Capture(const CudaStreamHandle& stream) : stream_(stream) {
    use(stream.gpu, k_begins);
    check(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal), k_begins);
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
    check(error, "a graph's end");
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

/// Those of a GPU's events that have no time, and those that have one.
struct EventPools {
  EventPools() = default;
  explicit EventPools(int gpu)
      : plain(std::make_shared<EventPool>(gpu, cudaEventDisableTiming)),
        timed(std::make_shared<EventPool>(gpu, cudaEventDefault)) {}
  std::shared_ptr<EventPool> plain;
  std::shared_ptr<EventPool> timed;
};

class CudaStream final : public Stream {
 public:
  /// `allocations`: the device's counter.
  CudaStream(int gpu, EventPools events, std::atomic<std::uint64_t>& allocations)
      : events_(std::move(events)), narrowed_(gpu, allocations), allocations_(allocations) {
    constexpr const char* k_what = "a stream";
    use(gpu, k_what);
    handle_.gpu = gpu;
    handle_.narrowed = &narrowed_;
    void* partial = nullptr;
    check(cudaStreamCreateWithFlags(&handle_.stream, cudaStreamNonBlocking), k_what);
    const auto ask = [&](cudaDeviceAttr attribute) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, attribute, gpu), k_what);
      return static_cast<std::size_t>(value);
    };
    handle_.most_shared = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    handle_.multiprocessors = ask(cudaDevAttrMultiProcessorCount);
    constexpr std::size_t k_arrivals = k_cuda_arrivals * sizeof(unsigned);
    check(cudaMalloc(&partial, k_cuda_partials * sizeof(double) + k_arrivals), k_what);
    handle_.partial = static_cast<double*>(partial);
    handle_.arrived = reinterpret_cast<unsigned*>(handle_.partial + k_cuda_partials);
    check(cudaMemsetAsync(handle_.arrived, 0, k_arrivals, handle_.stream), k_what);
    if (find_blas() != nullptr) {
      check(cudaMalloc(&handle_.workspace, k_cuda_workspace), k_what);
      handle_.workspace_bytes = k_cuda_workspace;
    }
  }
  ~CudaStream() override {
    forget();
    cudaSetDevice(handle_.gpu);
    cudaStreamSynchronize(handle_.stream);
    cudaStreamDestroy(handle_.stream);
    narrowed_.free();
    cudaFree(handle_.workspace);
    cudaFree(handle_.partial);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  std::unique_ptr<Event> record() override {
    return std::make_unique<CudaEvent>(events_.plain, handle_, "an event");
  }
  std::unique_ptr<Event> record_timed() override {
    return std::make_unique<CudaEvent>(events_.timed, handle_, "a timed event");
  }
  void wait(const Event& event) override {
    constexpr const char* k_what = "waiting for an event";
    use(handle_.gpu, k_what);
    narrowed_.forget();
    check(cudaStreamWaitEvent(handle_.stream, static_cast<const CudaEvent&>(event).get(), 0),
          k_what);
  }
  void copy(const void* from, void* to, std::size_t bytes) override {
    constexpr const char* k_what = "a copy";
    use(handle_.gpu, k_what);
    narrowed_.forget();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_.stream), k_what);
    if (is_pageable(from) || is_pageable(to)) {
      check(cudaStreamSynchronize(handle_.stream), k_what);
    }
  }
  void clear(void* memory, std::size_t bytes) override {
    constexpr const char* k_what = "clearing memory";
    use(handle_.gpu, k_what);
    narrowed_.forget();
    check(cudaMemsetAsync(memory, 0, bytes, handle_.stream), k_what);
  }

  /// The first run is direct, so that all memory gets allocated; the second is captured as a graph.
  void replay(const std::vector<std::uint64_t>& key, const std::function<void()>& put) override {
    narrowed_.forget(); // A graph must not depend on copies made before it.
    if (is_blocking_) {
      put();
      return;
    }
    if (seen_allocations_ != allocations_) {
      forget();
      seen_allocations_ = allocations_;
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
    use(handle_.gpu, k_graph);
    check(cudaGraphLaunch(it->second, handle_.stream), k_graph);
  }

  void check_put(int error, const char* kernel, bool has_forgotten) {
    if (!has_forgotten) {
      narrowed_.forget();
    }
    check(error, kernel);
    if (is_blocking_) {
      CudaEvent(events_.plain, handle_, kernel).wait_for(kernel);
    }
  }

  const CudaStreamHandle* handle() const { return &handle_; }
  void multiply_in(DType type) { handle_.multiplies_in = type; }
  void set_matmul_precision(MatmulPrecision precision) { handle_.matmul_precision = precision; }

 private:
  static constexpr std::size_t k_most_graphs = 64;
  static constexpr const char* k_graph = "a graph";

  /// Graphs may refer to memory that has been freed.
  void forget() {
    for (const auto& [key, graph] : graphs_) {
      if (graph != nullptr) {
        cudaGraphExecDestroy(graph);
      }
    }
    graphs_.clear();
  }

  CudaStreamHandle handle_;
  EventPools events_;
  bool is_blocking_ = is_launch_blocking();
  Narrowed narrowed_;
  const std::atomic<std::uint64_t>& allocations_;
  std::uint64_t seen_allocations_ = 0;
  /// Null: has run once so far.
  std::map<std::vector<std::uint64_t>, cudaGraphExec_t> graphs_;
};

class Gpu final : public CudaDevice {
 public:
  Gpu(int index, const std::string& flag) : index_(index) {
    check_there_is(flag);
    const std::string what = fmt::format("GPU {}", index);
    check(cudaGetDeviceProperties(&about_, index), what);
    use(index, what);
    std::size_t free = 0;
    check(cudaMemGetInfo(&free, &memory_), what);
    room_for_data_ = free / k_parts_for_data;
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) == cudaSuccess) {
      hertz_ = 1e3 * kilohertz;
    }
    arithmetic_ = fmt::format("cuda {}.{}", about_.major, about_.minor);
    kernels_.name = "cuda";
    kernels_.arithmetic = arithmetic_.c_str(); // Code is compiled for each architecture.
    kernels_.layers = &layers_;
    kernels_.text = &text_;
    set_flat_kernels(kernels_);
    set_layer_kernels(kernels_, layers_);
    set_score_kernels(layers_);
    set_gradient_kernels(layers_);
    set_convolution_kernels(layers_);
    set_text_kernels(text_);
    set_embedding_kernels(text_);
    set_norm_kernels(text_);
    set_attention_kernels(text_);
    events_ = EventPools(index);
    stream_ = std::make_unique<CudaStream>(index, events_, allocations_);
    paged_ = PagedMemory::make(
        {.index = index,
         .stream = *stream_,
         .count = [this](std::ptrdiff_t bytes) { add_allocated(bytes); },
         .fail = [](int error, const char* does) { check(error, does); },
         .fail_without =
             [this](std::size_t bytes) { fail_without(bytes, cudaErrorMemoryAllocation); }});
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  std::string describe() const override {
    return fmt::format("gpu:{}, {}, {:.0f} GiB, {} multiprocessors, compute capability {}.{}{}",
                       index_, about_.name, static_cast<double>(memory_) / k_gib,
                       about_.multiProcessorCount, about_.major, about_.minor,
                       paged_ != nullptr ? ""
                                         : "; its driver cannot unmap memory, so ZeRO stages 2 and "
                                           "3 free nothing");
  }
  PeakFlops peak_flops() const override {
    // Additions and multiplications a multiprocessor starts per cycle, in float32 and in 16 bits in
    // tensor cores, for A100, H100, B200 and the like; not known for others.
    const bool is_a100 = about_.major == 8 && about_.minor == 0;
    const int lanes = is_a100 ? 64 : about_.major >= 8 && about_.major <= 12 ? 128 : 0;
    const int of_16_bits = is_a100              ? 1024
                           : about_.major == 9  ? 2048
                           : about_.major == 10 ? 4096
                                                : 0;
    const CudaStreamHandle& as = *stream_->handle();
    const auto peak = [&](int at_a_time, const char* type) {
      return PeakFlops{2.0 * at_a_time * about_.multiProcessorCount * hertz_, type};
    };
    return as.multiplies_in == DType::bf16 && as.matmul_precision == MatmulPrecision::fp8
               ? peak(2 * of_16_bits, "FP8")
           : as.multiplies_in == DType::bf16              ? peak(of_16_bits, "bf16")
           : as.multiplies_in == DType::f16               ? peak(of_16_bits, "fp16")
           : as.matmul_precision == MatmulPrecision::high ? peak(of_16_bits / 2, "TF32")
                                                          : peak(lanes, "float32");
  }
  std::size_t most_allocated() const override { return most_allocated_; }
  std::size_t room_for_data() const override { return room_for_data_; }

  Buffer allocate(std::size_t count, DType dtype) override {
    const std::size_t bytes = count * size_of(dtype);
    void* memory = nullptr;
    ++allocations_;
    if (bytes > 0) {
      if (paged_ != nullptr) {
        paged_->trim();
      }
      if (cudaError_t error = cudaSetDevice(index_);
          error != cudaSuccess || (error = cudaMalloc(&memory, bytes)) != cudaSuccess) {
        fail_without(bytes, error);
      }
    }
    add_allocated(static_cast<std::ptrdiff_t>(bytes));
    Buffer buffer(memory, count, dtype, {Memory::Kind::cuda, index_}, [this, bytes](void* what) {
      add_allocated(-static_cast<std::ptrdiff_t>(bytes));
      cudaSetDevice(index_);
      cudaFree(what);
    });
    if (bytes > 0) {
      stream_->clear(memory, bytes);
      stream_->record()->wait(); // Finished before another stream uses it.
    }
    return buffer;
  }
  Buffer allocate_paged(std::size_t count) override {
    if (paged_ == nullptr || count == 0) {
      return allocate(count, DType::f32);
    }
    return {paged_->reserve(count * sizeof(float)),
            count,
            DType::f32,
            {Memory::Kind::cuda, index_},
            [this](void* what) { paged_->free(what); }};
  }
  std::size_t page_bytes() const override { return paged_ == nullptr ? 0 : paged_->page_bytes(); }
  void commit(std::span<float> part) override {
    if (paged_ != nullptr) {
      paged_->commit(part);
    }
  }
  void discard(std::span<float> part) override {
    if (paged_ != nullptr) {
      paged_->discard(part);
    }
  }
  Buffer allocate_pinned(std::size_t count, DType dtype) override {
    const std::size_t bytes = count * size_of(dtype);
    void* memory = nullptr;
    ++allocations_; // Kernels write to host memory, too.
    if (bytes > 0) {
      check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
            fmt::format("{} bytes of pinned memory", bytes));
    }
    return {memory, count, dtype, {Memory::Kind::pinned, index_}, [](void* what) {
              cudaFreeHost(what);
            }};
  }
  void move_to_file(std::span<float> /*part*/, const std::string& folder) override {
    refuse(fmt::format("--offload-param={}: a GPU cannot keep parameters in files; use "
                       "--offload-param=cpu, the host's memory",
                       folder));
  }

  Stream& stream() override { return *stream_; }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<CudaStream>(index_, events_, allocations_);
  }
  const Kernels& kernels() const override { return kernels_; }
  void multiply_in(DType type) override { stream_->multiply_in(type); }
  bool set_matmul_precision(MatmulPrecision precision) override {
    constexpr int k_with_tf32 = 80;
    constexpr int k_with_fp8 = 89;
    const int least = precision == MatmulPrecision::fp8    ? k_with_fp8
                      : precision == MatmulPrecision::high ? k_with_tf32
                                                           : 0;
    const bool has_it =
        least == 0 || (10 * about_.major + about_.minor >= least && find_blas() != nullptr);
    stream_->set_matmul_precision(has_it ? precision : MatmulPrecision::highest);
    return has_it;
  }
  DType activation_type() const override {
    return stream_->handle()->multiplies_in == DType::bf16 ? DType::bf16 : DType::f32;
  }

  int index() const override { return index_; }
  Uuid uuid() const override {
    Uuid uuid;
    static_assert(sizeof uuid == sizeof about_.uuid);
    std::memcpy(uuid.data(), &about_.uuid, sizeof uuid);
    return uuid;
  }
  std::string pci_bus_id() const override {
    char text[32] = "";
    return cudaDeviceGetPCIBusId(text, sizeof text, index_) == cudaSuccess ? text : "";
  }
  std::string model() const override { return about_.name; }
  bool reach(const CudaDevice& other) override {
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, index_, other.index()) != cudaSuccess || can == 0) {
      return false;
    }
    constexpr const char* k_what = "access to another GPU's memory";
    use(index_, k_what);
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.index(), 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) {
      check(error, k_what);
    } else {
      cudaGetLastError(); // Else the next kernel's launch would have this error.
    }
    return true;
  }
  int link_rank(const CudaDevice& other) const override {
    int rank = 0;
    check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, index_, other.index()),
          "the rank of the link to another GPU");
    return rank;
  }
  const DtrainNccl* nccl(std::string& why) const override { return find_nccl(why); }

 private:
  void check_there_is(const std::string& flag) const {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);
    if (driver == 0) {
      refuse(fmt::format("{}: no NVIDIA driver on this machine; use --device=cpu", flag));
    }
    if (error != cudaSuccess && driver < runtime) {
      refuse(fmt::format("{}: the driver is for CUDA {}, and CUDA {} is needed: {}; install "
                         "a newer driver, or use --device=cpu",
                         flag, cuda_version(driver), cuda_version(runtime), cuda_text(error)));
    }
    if (error != cudaSuccess) {
      refuse(fmt::format("{}: {}; use --device=cpu", flag, cuda_text(error)));
    }
    if (index_ >= gpus) {
      const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
      refuse(fmt::format(
          "{}: there is no GPU {} here, but {}{}", flag, index_, gpus,
          shown != nullptr ? fmt::format(" of CUDA_VISIBLE_DEVICES={}, which CUDA reads up to the "
                                         "first that this machine has not",
                                         shown)
          : gpus > 0       ? ", from 0 on"
                           : ""));
    }
  }

  void add_allocated(std::ptrdiff_t bytes) {
    const std::size_t all = allocated_ += static_cast<std::size_t>(bytes);
    most_allocated_ = std::max<std::size_t>(most_allocated_, all);
  }

  [[noreturn]] void fail_without(std::size_t bytes, int error) const {
    std::size_t free = 0;
    std::size_t all = 0;
    cudaMemGetInfo(&free, &all);
    const auto gib = [](std::size_t some) { return static_cast<double>(some) / k_gib; };
    fail(fmt::format("gpu:{}: no {:.2f} GiB more, beside the {:.2f} GiB that this process "
                     "has there: of {:.2f} GiB {:.2f} are free ({}); lower --batch-size "
                     "or --hidden, or end other programs on it (nvidia-smi lists them)",
                     index_, gib(bytes), gib(allocated_), gib(memory_), gib(free),
                     cuda_text(error)));
  }

  int index_;
  cudaDeviceProp about_{};
  std::size_t memory_ = 0;
  std::size_t room_for_data_ = 0;
  double hertz_ = 0; ///< Highest clock of its multiprocessors; 0: not known.
  std::string arithmetic_;
  Kernels kernels_{};
  LayerKernels layers_{};
  TextKernels text_{};
  std::atomic<std::uint64_t> allocations_{0};
  std::atomic<std::size_t> allocated_{0}; ///< Bytes allocated now.
  std::atomic<std::size_t> most_allocated_{0};
  EventPools events_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<PagedMemory> paged_; ///< Null: the driver cannot unmap memory.
};

} // namespace

const CudaStreamHandle* handle_of(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).handle();
}

void check_kernel(Stream& stream, int error, const char* kernel, bool has_forgotten) {
  static_cast<CudaStream&>(stream).check_put(error, kernel, has_forgotten);
}

extern "C" __attribute__((visibility("default"))) CudaDevice*
dtrain_cuda_device(const char* build, const CudaHost* trainer, int index, const char* flag) {
  if (std::strcmp(build, DTRAIN_CUDA_BUILD) != 0) {
    return nullptr;
  }
  host = trainer;
  try {
    throw 0;
  } catch (int) { // The first throw in this library initialises its unwinder.
  }
  return new Gpu(index, flag);
}

} // namespace trainer
