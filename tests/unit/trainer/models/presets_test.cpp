#include "trainer/models/transformer.h"

#include <doctest/doctest.h>

#include <numeric>

#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

TEST_CASE("presets have as many parameters as the models that they are named for") {
  struct Case {
    const char* model;
    const char* preset;
    std::size_t words;
    std::size_t positions;
    std::size_t parameters;
  };
  constexpr std::size_t k_pooler =
      256 * 256 + 256; // HelloDeepSpeed's, which nothing is learned by.
  for (const Case& one : {Case{"roberta", "hello", 50'265, 512, 16'345'177 - k_pooler},
                          Case{"roberta", "base", 50'265, 512, 124'697'433},
                          Case{"bert", "base", 30'522, 512, 109'514'298},
                          Case{"bert", "large", 30'522, 512, 335'174'458},
                          Case{"gpt2", "124M", 50'257, 1024, 124'439'808},
                          Case{"gpt2", "355M", 50'257, 1024, 354'823'168},
                          Case{"gpt2", "774M", 50'257, 1024, 774'030'080},
                          Case{"gpt2", "1558M", 50'257, 1024, 1'557'611'200}}) {
    CAPTURE(one.preset);
    ModelOptions options{.name = one.model};
    apply_preset(one.model, one.preset, options.transformer);
    options.transformer.vocabulary = one.words;
    options.transformer.max_length = one.positions;
    CpuDevice device;
    const auto model = make_language_model(options, device);
    const auto& tensors = model->tensors().tensors();
    CHECK(std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                          [](std::size_t sum, const Tensor& tensor) {
                            return sum + tensor.count();
                          }) == one.parameters);
  }
}
