#include "backends/local/gpu_measurement.h"

#include "backends/supervised/programs.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

namespace dtrain {
namespace {

constexpr std::chrono::seconds k_measure_limit{120}; ///< Many GPUs, and a driver that loads first.
constexpr double k_tera = 1e12;

} // namespace

MeasuredGpus read_measured_gpus(std::string_view text) {
  MeasuredGpus measured;
  try {
    const auto all = nlohmann::json::parse(text);
    double least = 0;
    double most = 0;
    std::string type;
    for (const auto& gpu : all.at("gpus")) {
      const auto flops = gpu.at("flops").get<double>();
      least = most == 0 ? flops : std::min(least, flops);
      most = std::max(most, flops);
      type = gpu.at("type").get<std::string>();
      if (const auto fault = gpu.at("fault").get<std::string>(); !fault.empty()) {
        measured.faults.emplace(gpu.at("gpu").get<std::string>(), printable(fault));
      }
    }
    for (const auto& fault : all.at("link_faults")) {
      measured.links.push_back(printable(fault.get<std::string>()));
    }
    const std::size_t count = all.at("gpus").size();
    measured.speeds =
        fmt::format("{} {}TFLOP/s of {}", count == 1 ? "1 GPU," : fmt::format("{} GPUs,", count),
                    count == 1 ? fmt::format("{:.4g} ", most / k_tera)
                               : fmt::format("{:.4g} to {:.4g} ", least / k_tera, most / k_tera),
                    printable(type));
  } catch (const nlohmann::json::exception&) {
    measured = {};
    measured.failure = last_line(text);
    if (measured.failure.empty()) {
      measured.failure = "dtrain-trainer check-gpus printed nothing";
    }
  }
  return measured;
}

MeasuredGpus measure_gpus(const std::vector<std::string>& devices) {
  MeasuredGpus measured;
  try {
    const std::string trainer = find_trainer();
    if (trainer.empty()) {
      measured.failure = "dtrain-trainer is not beside dtrain";
      return measured;
    }
    const CommandResult result =
        run_command({.argv = {trainer, "check-gpus", "--json"},
                     .env = {{"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(devices, ","))},
                             {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}},
                     .limit = k_measure_limit});
    if (result.ending.late) {
      for (const std::string& device : devices) {
        measured.faults[device] =
            fmt::format("GPU {}: dtrain-trainer check-gpus did not end within {} s; the driver or "
                        "a GPU may hang, see dmesg",
                        device, k_measure_limit.count());
      }
    } else if (result.out.empty()) {
      measured.failure = result.ending.signal != 0
                             ? fmt::format("dtrain-trainer check-gpus was ended by signal {}",
                                           result.ending.signal)
                             : last_line(result.errors);
    } else {
      measured = read_measured_gpus(result.out);
    }
  } catch (const Error& error) {
    measured.failure = error.what();
  }
  return measured;
}

} // namespace dtrain
