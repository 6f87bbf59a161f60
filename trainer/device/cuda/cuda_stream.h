// A GPU's stream as a Stream: events from pools, and CUDA graphs of what is put there again and
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "trainer/device/cuda/products/matmul.h"
#include "trainer/device/cuda/stream.h"
#include "trainer/device/device.h"

namespace trainer {

class EventPool;

/// A GPU's spare events, so that a step creates none: those that keep no time, and those that do.
struct EventPools {
  EventPools() = default;
  explicit EventPools(int gpu);
  std::shared_ptr<EventPool> plain;
  std::shared_ptr<EventPool> timed;
};

class CudaStream final : public Stream {
 public:
  /// `memory` outlives the stream.
  CudaStream(GpuMemory& memory, EventPools events);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  std::unique_ptr<Event> record() override;
  std::unique_ptr<Event> record_timed() override;
  void wait(const Event& event) override;
  void copy(const void* from, void* to, std::size_t bytes) override;
  void clear(void* memory, std::size_t bytes) override;
  /// The first run is direct, so that all memory gets allocated; the second is captured as a graph.
  void replay(const std::vector<std::uint64_t>& key, const std::function<void()>& put) override;

  /// See check_kernel() in kernels.h.
  void check_put(int error, const char* kernel, bool has_forgotten);

  const CudaStreamHandle* handle() const { return &handle_; }
  void multiply_in(DType type) { handle_.multiplies_in = type; }
  void set_matmul_precision(MatmulPrecision precision) { handle_.matmul_precision = precision; }

 private:
  void forget();

  CudaStreamHandle handle_;
  EventPools events_;
  bool is_blocking_;
  const GpuMemory& memory_;
  std::uint64_t seen_changes_ = 0; ///< Of memory_.
  Workspace workspace_;
  Narrowed narrowed_;
  /// Null: has run once so far.
  std::map<std::vector<std::uint64_t>, cudaGraphExec_t> graphs_;
};

} // namespace trainer
