// The plug-in's device, on top of CUDA's runtime.
#include "trainer/device/cuda/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "trainer/device/cuda/cuda_stream.h"
#include "trainer/device/cuda/errors.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/memory/paged_memory.h"
#include "trainer/device/cuda/products/matmul.h"

namespace trainer {
namespace {

constexpr double k_gib = 1 << 30;
/// A data set may take one part in this many of free memory.
constexpr std::size_t k_parts_for_data = 4;

/// 13000 → "13.0"
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

class Gpu final : public CudaDevice {
 public:
  Gpu(int index, const std::string& flag) : index_(index), allocated_(index) {
    check_there_is(flag);
    constexpr const char* k_what = "its properties";
    use_gpu(index, k_what);
    check_cuda(cudaGetDeviceProperties(&about_, index), k_what);
    std::size_t free = 0;
    check_cuda(cudaMemGetInfo(&free, &memory_), k_what);
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
    set_norm_backward_kernels(text_);
    set_attention_kernels(text_);
    events_ = EventPools(index);
    stream_ = std::make_unique<CudaStream>(allocated_, events_);
    paged_ = PagedMemory::make(allocated_, *stream_);
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
    // tensor cores, by the data sheets of A100, H100, B200, A10, L40S, RTX PRO 6000 and the like;
    // GeForce has half of the latter, as sums are float32. Not known for others.
    const bool is_a100 = about_.major == 8 && about_.minor == 0;
    const bool is_small = (about_.major == 8 && (about_.minor == 6 || about_.minor == 9)) ||
                          (about_.major == 12 && about_.minor == 0);
    const bool is_geforce = std::string_view(about_.name).find("GeForce") != std::string_view::npos;
    const int lanes = is_a100 ? 64 : about_.major >= 8 && about_.major <= 12 ? 128 : 0;
    const int of_16_bits = is_a100              ? 1024
                           : about_.major == 9  ? 2048
                           : about_.major == 10 ? 4096
                           : is_small           ? (is_geforce ? 256 : 512)
                                                : 0;
    const CudaStreamHandle& as = *stream_->handle();
    const auto peak = [&](int at_a_time, const char* type) {
      return PeakFlops{2.0 * at_a_time * about_.multiProcessorCount * hertz_, type};
    };
    return as.multiplies_in == DType::bf16 && as.matmul_precision == MatmulPrecision::fp8
               ? peak(2 * of_16_bits, "FP8")
           : as.multiplies_in == DType::bf16 ? peak(of_16_bits, "bf16")
           : as.multiplies_in == DType::f16  ? peak(of_16_bits, "fp16")
           : as.is_tf32()                    ? peak(of_16_bits / 2, "TF32")
                                             : peak(lanes, "float32");
  }
  std::size_t most_allocated() const override { return allocated_.most(); }
  std::size_t room_for_data() const override { return room_for_data_; }

  Buffer allocate(std::size_t count, DType dtype) override {
    const std::size_t bytes = count * size_of(dtype);
    void* memory = nullptr;
    if (bytes > 0) {
      if (const int error = allocated_.allocate(bytes, &memory); error != cudaSuccess) {
        allocated_.fail_without(bytes, error);
      }
    }
    Buffer buffer(memory, count, dtype, {Memory::Kind::cuda, index_},
                  [this, bytes](void* what) { allocated_.free(what, bytes); });
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
    allocated_.change(); // Kernels write to host memory, too.
    if (bytes > 0) {
      check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
                 fmt::format("{} bytes of pinned memory", bytes));
      note_memory(memory, bytes);
    }
    return {memory, count, dtype, {Memory::Kind::pinned, index_}, [](void* what) {
              forget_memory(what);
              cudaFreeHost(what);
            }};
  }
  Stream& stream() override { return *stream_; }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<CudaStream>(allocated_, events_);
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
    use_gpu(index_, k_what);
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.index(), 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) {
      check_cuda(error, k_what);
    } else {
      cudaGetLastError(); // Else the next kernel's launch would have this error.
    }
    return true;
  }
  int link_rank(const CudaDevice& other) const override {
    int rank = 0;
    check_cuda(
        cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, index_, other.index()),
        "the rank of the link to another GPU");
    return rank;
  }
  void set_planned(std::function<std::size_t()> planned) override {
    allocated_.set_planned(std::move(planned));
  }
  std::size_t memory_for_products(std::size_t values) const override {
    const CudaStreamHandle& as = *stream_->handle();
    const bool is_fp8 =
        as.multiplies_in == DType::bf16 && as.matmul_precision == MatmulPrecision::fp8;
    const bool copies = is_fp8 || as.multiplies_in == DType::f16;
    return find_blas() == nullptr
               ? 0
               : Workspace::k_bytes + (copies ? Narrowed::most_bytes(values, is_fp8) : 0);
  }
  Buffer pin(std::span<std::byte> memory, std::string& why) override {
    use_gpu(index_, "pinning memory");
    const cudaError_t error =
        cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (error != cudaSuccess) {
      cudaGetLastError(); // Else the next kernel's launch would have this error.
      why = cuda_text(error);
      return {nullptr, 0, DType::u8, {Memory::Kind::pinned, index_}, nullptr};
    }
    note_memory(memory.data(), memory.size());
    return {memory.data(), memory.size(), DType::u8, {Memory::Kind::pinned, index_}, [](void* at) {
              forget_memory(at);
              cudaHostUnregister(at);
            }};
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
      refuse_cuda(fmt::format("{}: no NVIDIA driver on this machine; use --device=cpu", flag));
    }
    if (error != cudaSuccess && driver < runtime) {
      refuse_cuda(fmt::format("{}: the driver is for CUDA {}, and CUDA {} is needed: {}; install "
                              "a newer driver, or use --device=cpu",
                              flag, cuda_version(driver), cuda_version(runtime), cuda_text(error)));
    }
    const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
    if (error != cudaSuccess) {
      refuse_cuda(fmt::format("{}: {}{}; use --device=cpu", flag, cuda_text(error),
                              shown != nullptr ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", shown)
                                               : std::string()));
    }
    if (index_ >= gpus) {
      refuse_cuda(fmt::format(
          "{}: there is no GPU {} here, but {}{}", flag, index_, gpus,
          shown != nullptr ? fmt::format(" of CUDA_VISIBLE_DEVICES={}, which CUDA reads up to the "
                                         "first that this machine has not, and counts from 0 on",
                                         shown)
          : gpus > 0       ? ", from 0 on"
                           : ""));
    }
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
  GpuMemory allocated_;
  EventPools events_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<PagedMemory> paged_; ///< Null: the driver cannot unmap memory.
};

} // namespace

extern "C" __attribute__((visibility("default"))) CudaDevice*
dtrain_cuda_device(const char* build, const CudaHost* trainer, int index, const char* flag) {
  if (std::strcmp(build, DTRAIN_CUDA_BUILD) != 0) {
    return nullptr;
  }
  report_to(*trainer);
  try {
    throw 0;
  } catch (int) { // The first throw in this library initialises its unwinder.
  }
  return new Gpu(index, flag);
}

} // namespace trainer
