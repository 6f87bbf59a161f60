#include "backends/local/gpu_measurement.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("of measured GPUs the faults are known by device, and how fast they are") {
  const auto measured = read_measured_gpus(R"({
    "gpus": [{"gpu": "0", "type": "bf16", "flops": 6.5e14, "fault": ""},
             {"gpu": "GPU-b", "type": "bf16", "flops": 3e14, "fault": "GPU GPU-b: it is slow"}],
    "links": [], "link_faults": ["GPU 0 to GPU GPU-b: copies are slow"]})");
  CHECK(measured.failure.empty());
  CHECK(measured.faults == std::map<std::string, std::string>{{"GPU-b", "GPU GPU-b: it is slow"}});
  CHECK(measured.links == std::vector<std::string>{"GPU 0 to GPU GPU-b: copies are slow"});
  CHECK(measured.speeds == "2 GPUs, 300 to 650 TFLOP/s of bf16");
}

TEST_CASE("what is no measurement says why there is none") {
  CHECK(read_measured_gpus("dtrain-trainer: check-gpus: no NVIDIA driver on this machine\n")
            .failure == "dtrain-trainer: check-gpus: no NVIDIA driver on this machine");
  for (const char* text : {"", "{}", R"({"gpus": [{"gpu": 0}], "link_faults": []})"}) {
    CAPTURE(text);
    CHECK(!read_measured_gpus(text).failure.empty());
    CHECK(read_measured_gpus(text).faults.empty());
  }
}
