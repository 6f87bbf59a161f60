#include "backends/local/gpu_health.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

constexpr const char* k_well = "0, NVIDIA H100, 580.159.04, 0, No, No, [N/A], GPU-aa11-1\n";
constexpr const char* k_ill = "1, NVIDIA H100, 580.159.04, 3, No, No, [N/A], GPU-bb22-2\n";

} // namespace

TEST_CASE("a device is known by index, by UUID and the beginning of one, and by its parts' names") {
  const auto health = read_gpu_health(std::string(k_well) + k_ill +
                                      "GPU 0: NVIDIA H100 (UUID: GPU-aa11-1)\n"
                                      "  MIG 1g.10gb     Device  0: (UUID: MIG-well)\n"
                                      "GPU 1: NVIDIA H100 (UUID: GPU-bb22-2)\n"
                                      "  MIG 1g.10gb     Device  0: (UUID: MIG-ill)\n");
  CHECK(health.driver == "580.159.04");
  for (const char* device : {"0", "GPU-aa11-1", "GPU-aa", "MIG-well", "MIG-GPU-aa11-1/1/0", "7"}) {
    CAPTURE(device);
    CHECK(health.fault_of(device).empty());
  }
  for (const char* device : {"1", "GPU-bb22-2", "GPU-bb", "MIG-ill", "MIG-GPU-bb22-2/1/0"}) {
    CAPTURE(device);
    CHECK(health.fault_of(device) ==
          "GPU 1 (NVIDIA H100): 3 uncorrectable ECC errors since the driver was loaded; reset it: "
          "nvidia-smi --gpu-reset -i 1");
  }
}

TEST_CASE("of a machine with a lost GPU the others are known, and it is not") {
  const std::string lost =
      "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.";
  const auto health = read_gpu_health(k_well + lost + "\nfailed 15\n");
  CHECK(health.fault_of("0").empty());
  CHECK(health.fault_of("1") == "nvidia-smi failed: " + lost);
  CHECK(read_gpu_health("1, NVIDIA H100, 580, [GPU is lost], [GPU is lost], No, No, GPU-b\n")
            .fault_of("1") ==
        "GPU 1 (NVIDIA H100): it has fallen off the bus; restart the machine");
  CHECK(read_gpu_health("1, [GPU is lost], [GPU is lost], [GPU is lost], No, No, No, GPU-b\n")
            .fault_of("1") == "GPU 1: it has fallen off the bus; restart the machine");
  CHECK(read_gpu_health("1, NVIDIA H100, 580, [GPU requires reset], No, No, No, GPU-b\n")
            .fault_of("1")
            .find("nvidia-smi --gpu-reset -i 1") != std::string::npos);
}

TEST_CASE(
    "a machine without nvidia-smi has no faults that are known, and a driver that fails does") {
  CHECK(!read_gpu_health("none\n").is_known);
  CHECK(read_gpu_health("none\n").fault_of("0").empty());
  CHECK(read_gpu_health("").fault_of("0").empty());
  CHECK(read_gpu_health("Failed to initialize NVML: Driver/library version mismatch\nfailed 18\n")
            .fault_of("0") ==
        "nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch");
  CHECK(read_gpu_health("failed 9\n").fault_of("0") == "nvidia-smi failed: failed 9");
}

TEST_CASE("what the driver wants done after an error is a fault, though nothing is counted") {
  const auto health = [](const char* action) {
    return read_gpu_health(k_well + std::string("action 0, ") + action + "\n").fault_of("0");
  };
  CHECK(health("Reset") == "GPU 0 (NVIDIA H100): it stopped working after an error (an Xid, see "
                           "dmesg); reset it: nvidia-smi --gpu-reset -i 0");
  CHECK(health("Drain and Reset") == health("Reset"));
  CHECK(health("Reboot") == "GPU 0 (NVIDIA H100): it stopped working after an error (an Xid, see "
                            "dmesg); restart the machine");
  for (const char* none : {"None", "Drain P2P", "[N/A]"}) {
    CHECK(health(none).empty());
  }
  CHECK(read_gpu_health(std::string(k_well) + "action Field \"gpu_recovery_action\" is not a valid "
                                              "field to query.\n")
            .fault_of("0")
            .empty());
}

TEST_CASE("what a GPU does not have is no fault") {
  CHECK(
      read_gpu_health("0, NVIDIA GeForce RTX 4090, 580, [N/A], [N/A], [N/A], [Not Supported], G\n")
          .fault_of("0")
          .empty());
}
