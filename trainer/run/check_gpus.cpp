#include "trainer/run/check_gpus.h"

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/errors.h"
#include "trainer/run/gpu_judgement.h"
#include "trainer/run/measured_gpu.h"
#include "trainer/strategy/mirrored.h"

namespace trainer {
namespace {

constexpr const char* k_command = "check-gpus";

/// A machine's GPUs and what was measured of them.
struct Gpus {
  CheckFactors factors;
  std::vector<GpuMeasurement> measured;
  std::vector<std::unique_ptr<CudaDevice>> devices;   ///< Null: it could not be opened.
  std::vector<std::unique_ptr<MeasuredGpu>> matrices; ///< Null: it raised an error.
  std::vector<LinkMeasurement> links;
};

/// GPU number `index` as CUDA_VISIBLE_DEVICES names it.
std::string name_of(int index) {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string_view rest = shown == nullptr ? "" : shown;
  for (int before = 0; before < index; ++before) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::string_view name = rest.substr(0, rest.find(','));
  return name.empty() ? fmt::format("{}", index) : std::string(name);
}

/// Without the advice for training.
std::string without_cpu(std::string what) {
  for (const std::string_view advice : {", or use --device=cpu", "; use --device=cpu"}) {
    if (what.ends_with(advice)) {
      what.resize(what.size() - advice.size());
    }
  }
  return what;
}

/// False: the machine has no such GPU, and so none of a higher number.
bool open(Gpus& gpus, int index, bool is_optional) {
  GpuMeasurement measured{.name = name_of(index)};
  std::unique_ptr<CudaDevice> device;
  try {
    device = make_cuda_device(index, k_command);
    measured.model = device->model();
  } catch (const UsageError& error) {
    if (is_optional) {
      return false;
    }
    throw UsageError(without_cpu(error.what()));
  } catch (const Error& error) {
    measured.error = error.what();
  }
  gpus.measured.push_back(std::move(measured));
  gpus.devices.push_back(std::move(device));
  return true;
}

Gpus open_gpus(const std::string& choice) {
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); // So that numbers are nvidia-smi's.
  Gpus gpus;
  for (const std::string& device : parse_devices(choice)) {
    constexpr std::string_view k_gpu = "gpu:";
    if (!device.starts_with(k_gpu)) {
      throw UsageError(
          fmt::format("--devices={}: check-gpus measures GPUs; use gpu:0,gpu:1", choice));
    }
    open(gpus, std::stoi(device.substr(k_gpu.size())), false);
  }
  for (int index = 0; choice.empty() && open(gpus, index, index > 0); ++index) {
  }
  gpus.matrices.resize(gpus.devices.size());
  return gpus;
}

/// All GPUs at the same time, with a thread each.
void multiply(Gpus& gpus, const GpuCheckOptions& options) {
  std::barrier all_ready(static_cast<std::ptrdiff_t>(gpus.devices.size()));
  const auto measure = [&](std::size_t i) {
    GpuMeasurement& measured = gpus.measured[i];
    bool is_ready = false;
    try {
      if (gpus.devices[i] != nullptr) {
        auto matrices = std::make_unique<MeasuredGpu>(
            *gpus.devices[i], static_cast<std::size_t>(options.size), gpus.factors, measured);
        matrices->multiply_once();
        is_ready = true;
        all_ready.arrive_and_wait();
        matrices->multiply_for(options.seconds);
        matrices->copy_in_memory();
        gpus.matrices[i] = std::move(matrices);
      }
    } catch (const std::exception& error) {
      measured.error = error.what();
    }
    if (!is_ready) {
      all_ready.arrive_and_drop();
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < gpus.devices.size(); ++i) {
    threads.emplace_back(measure, i);
  }
}

/// One pair after the other.
void copy(Gpus& gpus) {
  for (std::size_t from = 0; from < gpus.matrices.size(); ++from) {
    for (std::size_t to = 0; to < gpus.matrices.size(); ++to) {
      if (from == to || gpus.matrices[from] == nullptr || gpus.matrices[to] == nullptr) {
        continue;
      }
      LinkMeasurement link{.from = from, .to = to};
      try {
        gpus.matrices[to]->copy_from(*gpus.matrices[from], link);
      } catch (const Error& error) {
        link.error = error.what();
      }
      gpus.links.push_back(std::move(link));
    }
  }
}

std::string speed_text(const GpuMeasurement& gpu) {
  if (!gpu.error.empty()) {
    return "not measured";
  }
  return fmt::format("{:.4g} TFLOP/s of {}{}; memory {:.4g} GB/s; {} products compared",
                     gpu.flops / k_teraflop, gpu.peak.type,
                     gpu.peak.a_second == 0 ? ""
                                            : fmt::format(", {:.0f} % of its peak of {:.4g}",
                                                          100 * gpu.flops / gpu.peak.a_second,
                                                          gpu.peak.a_second / k_teraflop),
                     gpu.memory_bytes / k_gigabyte, gpu.products);
}

void print_links(const Gpus& gpus) {
  constexpr int k_width = 9;
  fmt::print("GB/s from GPU (row) to GPU (column):\n{:{}}", "", k_width);
  for (const GpuMeasurement& gpu : gpus.measured) {
    fmt::print(" {:>{}}", gpu.name, k_width);
  }
  for (std::size_t from = 0; from < gpus.measured.size(); ++from) {
    fmt::print("\n{:<{}}", gpus.measured[from].name, k_width);
    for (std::size_t to = 0; to < gpus.measured.size(); ++to) {
      const auto link =
          std::find_if(gpus.links.begin(), gpus.links.end(), [&](const LinkMeasurement& each) {
            return each.from == from && each.to == to;
          });
      fmt::print(" {:>{}}",
                 link == gpus.links.end() || link->bytes == 0
                     ? "-"
                     : fmt::format("{:.4g}", link->bytes / k_gigabyte),
                 k_width);
    }
  }
  fmt::print("\n");
  std::vector<std::string> kinds;
  for (const LinkMeasurement& link : gpus.links) {
    if (std::find(kinds.begin(), kinds.end(), link.kind) == kinds.end()) {
      kinds.push_back(link.kind);
    }
  }
  fmt::print("copied {}\n", fmt::join(kinds, "; "));
}

void print_text(const Gpus& gpus, const std::vector<std::string>& findings) {
  for (const GpuMeasurement& gpu : gpus.measured) {
    fmt::print("GPU {}{}: {}\n", gpu.name, gpu.model.empty() ? "" : fmt::format(" ({})", gpu.model),
               speed_text(gpu));
  }
  if (!gpus.links.empty()) {
    print_links(gpus);
  }
  for (const std::string& finding : findings) {
    fmt::print("fault: {}\n", finding);
  }
}

void print_json(const Gpus& gpus, const GpuJudgement& judgement) {
  nlohmann::json all = {{"gpus", nlohmann::json::array()},
                        {"links", nlohmann::json::array()},
                        {"link_faults", judgement.links}};
  for (std::size_t i = 0; i < gpus.measured.size(); ++i) {
    const GpuMeasurement& gpu = gpus.measured[i];
    all["gpus"].push_back({{"gpu", gpu.name},
                           {"model", gpu.model},
                           {"type", gpu.peak.type},
                           {"flops", gpu.flops},
                           {"peak_flops", gpu.peak.a_second},
                           {"memory_bytes_per_second", gpu.memory_bytes},
                           {"products", gpu.products},
                           {"digest", fmt::format("{:016x}", gpu.digest)},
                           {"fault", judgement.faults[i]}});
  }
  for (const LinkMeasurement& link : gpus.links) {
    all["links"].push_back({{"from", gpus.measured[link.from].name},
                            {"to", gpus.measured[link.to].name},
                            {"kind", link.kind},
                            {"bytes_per_second", link.bytes}});
  }
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

} // namespace

dtrain::CommandTable check_gpus_command(GpuCheckOptions& options) {
  constexpr int k_most = 65536;
  dtrain::CommandTable table;
  table.name = k_command;
  table.summary = "Measure this machine's GPUs, and name the faulty ones";
  table.description =
      "All GPUs multiply the same matrices at the same time, for about a second; then each copies "
      "to each other one. Prints each GPU's FLOP/s, the bandwidth of its memory and of the copies, "
      "and a line for each fault: a GPU that raises an error; whose products differ from the "
      "CPU's, from one another, or from those of other GPUs of its model; a GPU or a link below "
      "70 % of the fastest of its kind in the machine. CUDA_VISIBLE_DEVICES selects GPUs.\n\nA GPU "
      "that other programs use is slow, and they are slowed down. Exits with 1 if there is a "
      "fault, and with 2 if there is no GPU, driver or CUDA plug-in.";
  table.examples = {"# Before a long job", "dtrain-trainer check-gpus", "# Two GPUs, for a minute",
                    "dtrain-trainer check-gpus --devices=gpu:0,gpu:1 --seconds=60"};
  table.options = {{.flags = "--devices",
                    .target = &options.devices,
                    .metavar = "LIST",
                    .help = "GPUs to measure, such as gpu:0,gpu:1 [all]"},
                   {.flags = "--seconds",
                    .target = &options.seconds,
                    .metavar = "S",
                    .help = "How long to multiply [1]",
                    .minimum = 0},
                   {.flags = "--size",
                    .target = &options.size,
                    .metavar = "N",
                    .help = "Rows and columns of the matrices; a GPU needs 12 N² bytes of memory "
                            "[8192]",
                    .minimum = 1,
                    .maximum = k_most},
                   {.flags = "--json", .target = &options.json, .help = "Print JSON"}};
  return table;
}

void check_gpus(const GpuCheckOptions& options) {
  Gpus gpus = open_gpus(options.devices);
  multiply(gpus, options);
  copy(gpus);
  const GpuJudgement judgement = judge(gpus.measured, gpus.links);
  const std::vector<std::string> findings = judgement.all();
  options.json ? print_json(gpus, judgement) : print_text(gpus, findings);
  gpus.matrices.clear(); // Before the devices.
  if (!findings.empty()) {
    throw Error(fmt::format("found {} {}; see above", findings.size(),
                            findings.size() == 1 ? "fault" : "faults"));
  }
}

} // namespace trainer
