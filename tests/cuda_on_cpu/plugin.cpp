// The plug-in as tests load it where there is no GPU: the real kernels, over tests' own runtime.
#include <cstdlib>

#include "tests/cuda_on_cpu/runtime.h"
#include "trainer/device/cuda/kernels.h"

namespace trainer {

extern "C" __attribute__((visibility("default"))) const DtrainCuda* dtrain_cuda() {
  static const DtrainCuda table = [] {
    DtrainCuda all{};
    const char* version = std::getenv("DTRAIN_FAKE_PLUGIN_VERSION");
    all.version = version == nullptr ? k_dtrain_cuda_version : std::atoi(version);
    all.build = DTRAIN_VERSION;
    cuda_on_cpu::set_runtime(all);
    cuda_on_cpu::set_nccl(all);
    set_flat_kernels(all);
    set_layer_kernels(all);
    set_convolution_kernels(all);
    set_text_kernels(all);
    set_attention_kernels(all);
    return all;
  }();
  return &table;
}

} // namespace trainer
