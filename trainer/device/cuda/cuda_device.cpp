#include "trainer/device/cuda/cuda_device.h"

#include <array>
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

} // namespace

class CudaDevice::CudaEvent final : public Event {
 public:
  CudaEvent(const DtrainCuda& table, void* event) : table_(table), event_(event) {}
  ~CudaEvent() override { table_.destroy_event(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool has_passed() const override {
    int passed = 0;
    check_cuda(table_, table_.has_passed(event_, &passed), "what a stream was given");
    return passed != 0;
  }
  void wait() const override { check_cuda(table_, table_.wait(event_), "what a stream was given"); }
  void* get() const { return event_; }

 private:
  const DtrainCuda& table_;
  void* event_;
};

class CudaDevice::CudaStream final : public Stream {
 public:
  CudaStream(const DtrainCuda& table, int gpu) : table_(table) {
    check_cuda(table, table.make_stream(gpu, &handle_), "a stream");
  }
  ~CudaStream() override { table_.destroy_stream(&handle_); }
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

  const DtrainCuda& table() const { return table_; }
  const CudaStreamHandle* handle() const { return &handle_; }

 private:
  const DtrainCuda& table_;
  CudaStreamHandle handle_;
};

/// What Kernels holds: each puts a kernel of the table on the stream that it is given.
struct CudaKernels {
  template <typename Function, typename... Arguments>
  static void put(Stream& stream, Function DtrainCuda::*function, const char* name,
                  Arguments... arguments) {
    const auto& on = static_cast<CudaDevice::CudaStream&>(stream);
    check_cuda(on.table(), (on.table().*function)(on.handle(), arguments...), name);
  }

  static void sgd(Stream& stream, std::size_t n, const UpdateRule& rule, const float* gradient,
                  float* m, float* parameter) {
    put(stream, &DtrainCuda::sgd, "sgd", n, &rule, gradient, m, parameter);
  }
  static void adam(Stream& stream, std::size_t n, const UpdateRule& rule, const float* gradient,
                   float* m, float* v, float* parameter) {
    put(stream, &DtrainCuda::adam, "adam", n, &rule, gradient, m, v, parameter);
  }
  static void lamb(Stream& stream, std::size_t n, const UpdateRule& rule, const float* gradient,
                   float* m, float* v, float* u, float* parameter) {
    put(stream, &DtrainCuda::lamb, "lamb", n, &rule, gradient, m, v, u, parameter);
  }
  static void clip_factor(Stream& stream, std::size_t n, const float* gradient, float limit,
                          float* norm, float* factor) {
    put(stream, &DtrainCuda::clip_factor, "clip_factor", n, gradient, limit, norm, factor);
  }
  static void bytes_to_floats(Stream& stream, std::size_t n, const std::uint8_t* from, float* to) {
    put(stream, &DtrainCuda::bytes_to_floats, "bytes_to_floats", n, from, to);
  }
  static void dense(Stream& stream, const DenseShape& shape, const float* x, const float* weight,
                    const float* bias, bool relu, float* y) {
    put(stream, &DtrainCuda::dense, "dense", &shape, x, weight, bias, relu ? 1 : 0, y);
  }
  static void dense_backward_weight(Stream& stream, const DenseShape& shape, const float* x,
                                    const float* dy, bool accumulate, float* dweight,
                                    float* dbias) {
    put(stream, &DtrainCuda::dense_backward_weight, "dense_backward_weight", &shape, x, dy,
        accumulate ? 1 : 0, dweight, dbias);
  }
  static void dense_backward_input(Stream& stream, const DenseShape& shape, const float* dy,
                                   const float* weight, const float* x, float* dx) {
    put(stream, &DtrainCuda::dense_backward_input, "dense_backward_input", &shape, dy, weight, x,
        dx);
  }
  static void softmax_cross_entropy(Stream& stream, std::size_t rows, std::size_t classes,
                                    const float* logits, const std::uint8_t* labels, float scale,
                                    float* change, Score* score) {
    put(stream, &DtrainCuda::softmax_cross_entropy, "softmax_cross_entropy", rows, classes, logits,
        labels, scale, change, score);
  }
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
    throw UsageError(fmt::format("{}: there is no GPU {} here, but {}{}", flag, index, gpus,
                                 gpus > 0 ? ", from 0 on; see also CUDA_VISIBLE_DEVICES" : ""));
  }
  check_cuda(table, table.about(index, &about_), fmt::format("GPU {}", index));
  stream_ = std::make_unique<CudaStream>(table, index);
}

CudaDevice::~CudaDevice() = default;

std::string CudaDevice::describe() const {
  return fmt::format("gpu:{}, {}, {:.0f} GiB, {} multiprocessors, compute capability {}.{}", index_,
                     about_.name, static_cast<double>(about_.memory) / k_gib,
                     about_.multiprocessors, about_.major, about_.minor);
}

Buffer CudaDevice::allocate(std::size_t count, DType dtype) {
  const std::size_t bytes = count * size_of(dtype);
  void* memory = nullptr;
  if (bytes > 0) {
    if (const int error = table_.allocate(index_, bytes, &memory); error != 0) {
      CudaGpu now{};
      table_.about(index_, &now);
      throw Error(fmt::format(
          "gpu:{}: no {:.2f} GiB more, of {:.2f} GiB {:.2f} are free ({}); lower "
          "--batch-size or --hidden",
          index_, static_cast<double>(bytes) / k_gib, static_cast<double>(about_.memory) / k_gib,
          static_cast<double>(now.free) / k_gib, cuda_text(table_, error)));
    }
  }
  Buffer buffer(memory, count, dtype, {Memory::Kind::cuda, index_},
                [table = &table_, gpu = index_](void* what) { table->free(gpu, what); });
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
  return std::make_unique<CudaStream>(table_, index_);
}

const Kernels& CudaDevice::kernels() const {
  static constexpr LayerKernels layers = {CudaKernels::dense, CudaKernels::dense_backward_weight,
                                          CudaKernels::dense_backward_input,
                                          CudaKernels::softmax_cross_entropy};
  static constexpr Kernels kernels = {"cuda",
                                      "cuda",
                                      CudaKernels::sgd,
                                      CudaKernels::adam,
                                      CudaKernels::lamb,
                                      CudaKernels::clip_factor,
                                      CudaKernels::bytes_to_floats,
                                      &layers};
  return kernels;
}

} // namespace trainer
