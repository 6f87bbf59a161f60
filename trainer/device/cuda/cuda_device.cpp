#include "trainer/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_cuda_text = 256;
constexpr double k_gib = 1 << 30;

std::string cuda_text(const DtrainCuda& table, int error) {
  std::array<char, k_cuda_text> text{};
  table.text(error, text.data(), text.size());
  return text.data();
}

void check_cuda(const DtrainCuda& table, int error, const std::string& what) {
  if (error != 0) {
    throw Error(fmt::format("CUDA: {}: {}", what, cuda_text(table, error)));
  }
}

/// "13.0" of 13000
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

bool is_launch_blocking() {
  const char* value = std::getenv(k_cuda_launch_blocking);
  return value != nullptr && std::string_view(value) == "1";
}

constexpr const char* k_some_work = "work on a GPU (--cuda-launch-blocking names the kernel)";

/// Of an error's text.
struct KernelName {
  template <std::size_t N>
  constexpr KernelName(const char (&from)[N]) { // NOLINT(google-explicit-constructor)
    std::copy_n(from, N, text);
  }
  char text[32] = {};
};

} // namespace

class CudaDevice::CudaEvent final : public Event {
 public:
  CudaEvent(const DtrainCuda& table, void* event) : table_(table), event_(event) {}
  ~CudaEvent() override { table_.destroy_event(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool has_passed() const override {
    int passed = 0;
    check_cuda(table_, table_.has_passed(event_, &passed), k_some_work);
    return passed != 0;
  }
  void wait() const override { wait_for(k_some_work); }
  /// An error is reported as one in `what`.
  void wait_for(const char* what) const { check_cuda(table_, table_.wait(event_), what); }
  void* get() const { return event_; }

 private:
  const DtrainCuda& table_;
  void* event_;
};

class CudaDevice::CudaStream final : public Stream {
 public:
  /// `allocations`: of the device, counted by it.
  CudaStream(const DtrainCuda& table, int gpu, const std::atomic<std::uint64_t>& allocations)
      : table_(table), allocations_(allocations) {
    check_cuda(table, table.make_stream(gpu, &handle_), "a stream");
  }
  ~CudaStream() override {
    forget();
    table_.destroy_stream(&handle_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  std::unique_ptr<Event> record() override {
    void* event = nullptr;
    check_cuda(table_, table_.record(&handle_, &event), "an event");
    return std::make_unique<CudaEvent>(table_, event);
  }
  void wait(const Event& event) override {
    check_cuda(table_, table_.hold(&handle_, dynamic_cast<const CudaEvent&>(event).get()),
               "waiting for an event");
  }
  void copy(const void* from, void* to, std::size_t bytes) override {
    check_cuda(table_, table_.copy(&handle_, from, to, bytes), "a copy");
  }
  void clear(void* memory, std::size_t bytes) override {
    check_cuda(table_, table_.clear(&handle_, memory, bytes), "clearing memory");
  }

  /// The first time as it is, so that all memory is there; the second time noted as a graph.
  void replay(const std::vector<std::uint64_t>& key, const std::function<void()>& put) override {
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
      it->second = note(put);
    }
    check_cuda(table_, table_.put_graph(&handle_, it->second), "a graph");
  }

  /// Of a kernel that was put here.
  void check(int error, const char* kernel) {
    check_cuda(table_, error, kernel);
    if (is_blocking_) {
      void* event = nullptr;
      check_cuda(table_, table_.record(&handle_, &event), kernel);
      CudaEvent(table_, event).wait_for(kernel);
    }
  }

  const DtrainCuda& table() const { return table_; }
  const CudaStreamHandle* handle() const { return &handle_; }

 private:
  static constexpr std::size_t k_most_graphs = 64;

  void* note(const std::function<void()>& put) {
    check_cuda(table_, table_.begin_graph(&handle_), "a graph's beginning");
    void* graph = nullptr;
    try {
      put();
    } catch (...) {
      if (table_.end_graph(&handle_, &graph) == 0) {
        table_.destroy_graph(graph);
      }
      throw;
    }
    check_cuda(table_, table_.end_graph(&handle_, &graph), "a graph's end");
    return graph;
  }

  /// They are of memory that may have been given back.
  void forget() {
    for (const auto& [key, graph] : graphs_) {
      if (graph != nullptr) {
        table_.destroy_graph(graph);
      }
    }
    graphs_.clear();
  }

  const DtrainCuda& table_;
  CudaStreamHandle handle_;
  bool is_blocking_ = is_launch_blocking();
  const std::atomic<std::uint64_t>& allocations_;
  std::uint64_t seen_allocations_ = 0;
  std::map<std::vector<std::uint64_t>, void*> graphs_; ///< Null: put here once so far.
};

/// What Kernels holds: each puts a kernel of the table on the stream that it is given.
struct CudaKernels {
  /// As the table takes it, which is C's: shapes by their address, and whether as a number.
  template <typename T>
  static auto plain(const T& argument) {
    if constexpr (std::is_same_v<T, bool>) {
      return argument ? 1 : 0;
    } else if constexpr (std::is_class_v<T>) {
      return &argument;
    } else {
      return argument;
    }
  }

  template <auto Function, typename... Arguments>
  static void put(Stream& stream, const char* name, const Arguments&... arguments) {
    auto& on = static_cast<CudaDevice::CudaStream&>(stream);
    on.check((on.table().*Function)(on.handle(), plain(arguments)...), name);
  }

  template <typename... Parameters>
  using Kernel = void (*)(Stream&, Parameters...);

  /// A kernel of the table, as a function of the parameters that Kernels has it with.
  template <auto Function, KernelName Name>
  struct Put {
    template <typename... Parameters>
    constexpr operator Kernel<Parameters...>() const { // NOLINT(google-explicit-constructor)
      return [](Stream& stream, Parameters... parameters) {
        put<Function>(stream, Name.text, parameters...);
      };
    }
  };
};

CudaDevice::CudaDevice(const DtrainCuda& table, int index, const std::string& flag)
    : table_(table), index_(index) {
  int driver = 0;
  int runtime = 0;
  table.versions(&driver, &runtime);
  int gpus = 0;
  const int error = table.count(&gpus);
  if (driver == 0) {
    throw UsageError(fmt::format("{}: no NVIDIA driver on this machine; use --device=cpu", flag));
  }
  if (error != 0 && driver < runtime) {
    throw UsageError(
        fmt::format("{}: the driver is for CUDA {}, and CUDA {} is needed: {}; install "
                    "a newer driver, or use --device=cpu",
                    flag, cuda_version(driver), cuda_version(runtime), cuda_text(table, error)));
  }
  if (error != 0) {
    throw UsageError(fmt::format("{}: {}; use --device=cpu", flag, cuda_text(table, error)));
  }
  if (index >= gpus) {
    const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
    throw UsageError(fmt::format(
        "{}: there is no GPU {} here, but {}{}", flag, index, gpus,
        shown != nullptr ? fmt::format(" of CUDA_VISIBLE_DEVICES={}, which CUDA reads up to the "
                                       "first that this machine has not",
                                       shown)
        : gpus > 0       ? ", from 0 on"
                         : ""));
  }
  check_cuda(table, table.about(index, &about_), fmt::format("GPU {}", index));
  arithmetic_ = fmt::format("cuda {}.{}", about_.major, about_.minor);
  kernels_ = make_kernels(arithmetic_.c_str());
  stream_ = std::make_unique<CudaStream>(table, index, allocations_);
}

CudaDevice::~CudaDevice() = default;

double CudaDevice::peak_flops() const {
  // Additions and multiplications of float32 that a multiprocessor begins at a time.
  const int lanes = about_.major == 8 && about_.minor == 0    ? 64
                    : about_.major >= 8 && about_.major <= 12 ? 128
                                                              : 0;
  return 2.0 * lanes * about_.multiprocessors * about_.hertz;
}

std::string CudaDevice::describe() const {
  return fmt::format("gpu:{}, {}, {:.0f} GiB, {} multiprocessors, compute capability {}.{}", index_,
                     about_.name, static_cast<double>(about_.memory) / k_gib,
                     about_.multiprocessors, about_.major, about_.minor);
}

Buffer CudaDevice::allocate(std::size_t count, DType dtype) {
  const std::size_t bytes = count * size_of(dtype);
  void* memory = nullptr;
  ++allocations_;
  if (bytes > 0) {
    if (const int error = table_.allocate(index_, bytes, &memory); error != 0) {
      CudaGpu now{};
      table_.about(index_, &now);
      const auto gib = [](std::size_t some) { return static_cast<double>(some) / k_gib; };
      throw Error(fmt::format("gpu:{}: no {:.2f} GiB more, beside the {:.2f} GiB that this process "
                              "has there: of {:.2f} GiB {:.2f} are free ({}); lower --batch-size "
                              "or --hidden, or end other programs on it (nvidia-smi lists them)",
                              index_, gib(bytes), gib(allocated_), gib(about_.memory),
                              gib(now.free), cuda_text(table_, error)));
    }
  }
  const std::size_t all = allocated_ += bytes;
  most_allocated_ = std::max<std::size_t>(most_allocated_, all);
  Buffer buffer(memory, count, dtype, {Memory::Kind::cuda, index_}, [this, bytes](void* what) {
    allocated_ -= bytes;
    table_.free(index_, what);
  });
  if (bytes > 0) {
    stream_->clear(memory, bytes);
    stream_->record()->wait(); // Before another stream uses it.
  }
  return buffer;
}

Buffer CudaDevice::allocate_pinned(std::size_t count, DType dtype) {
  const std::size_t bytes = count * size_of(dtype);
  void* memory = nullptr;
  if (bytes > 0) {
    check_cuda(table_, table_.allocate_pinned(bytes, &memory),
               fmt::format("{} bytes of pinned memory", bytes));
  }
  return {memory, count, dtype, {Memory::Kind::pinned, index_}, [table = &table_](void* what) {
            table->free_pinned(what);
          }};
}

Stream& CudaDevice::stream() { return *stream_; }

std::unique_ptr<Stream> CudaDevice::make_stream() {
  return std::make_unique<CudaStream>(table_, index_, allocations_);
}

const CudaStreamHandle* CudaDevice::handle(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).handle();
}

/// `arithmetic`: of one compute capability, whose code is compiled for it alone.
Kernels CudaDevice::make_kernels(const char* arithmetic) {
#define DTRAIN_PUT(name) .name = CudaKernels::Put<&DtrainCuda::name, #name>()
  static constexpr LayerKernels layers = {
      DTRAIN_PUT(softmax_cross_entropy), DTRAIN_PUT(convolution),
      DTRAIN_PUT(convolution_backward_weight), DTRAIN_PUT(convolution_backward_input)};
  static constexpr TextKernels text = {
      DTRAIN_PUT(keep_bits),           DTRAIN_PUT(drop),
      DTRAIN_PUT(drop_and_add),        DTRAIN_PUT(embed),
      DTRAIN_PUT(embed_backward),      DTRAIN_PUT(norm),
      DTRAIN_PUT(norm_backward),       DTRAIN_PUT(gelu_backward),
      DTRAIN_PUT(attention),           DTRAIN_PUT(attention_backward),
      DTRAIN_PUT(gather_masked),       DTRAIN_PUT(scatter_masked),
      DTRAIN_PUT(masked_cross_entropy)};
  return {.name = "cuda",
          .arithmetic = arithmetic,
          DTRAIN_PUT(begin),
          DTRAIN_PUT(prepare),
          DTRAIN_PUT(sgd),
          DTRAIN_PUT(adam),
          DTRAIN_PUT(lamb),
          DTRAIN_PUT(muon_direction),
          DTRAIN_PUT(muon_take),
          DTRAIN_PUT(normalise),
          DTRAIN_PUT(blend),
          DTRAIN_PUT(matmul),
          DTRAIN_PUT(squares),
          DTRAIN_PUT(sum),
          DTRAIN_PUT(bytes_to_floats),
          DTRAIN_PUT(narrow),
          DTRAIN_PUT(widen),
          .layers = &layers,
          .text = &text};
#undef DTRAIN_PUT
}

} // namespace trainer
