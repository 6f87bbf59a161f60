#include "backends/local/gpu_health.h"

#include "backends/support/os/subprocess.h"
#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

namespace dtrain {
namespace {

constexpr std::chrono::seconds k_limit{
    20}; ///< The driver of a machine that nobody uses loads first.
constexpr const char* k_query = "--query-gpu=index,name,driver_version,"
                                "ecc.errors.uncorrected.volatile.total,remapped_rows.failure,"
                                "remapped_rows.pending,retired_pages.pending";
enum Field : std::size_t {
  index,
  name,
  driver,
  ecc_errors,
  unrepairable,
  unmapped,
  unretired,
  count
};

using Line = std::array<std::string_view, Field::count>;

Line fields_of(std::string_view line) {
  Line fields;
  for (std::string_view& field : fields) {
    const std::size_t end = std::min(line.find(','), line.size());
    field = trimmed(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

/// "[N/A]" and "[Not Supported]" are none.
bool is_some(std::string_view errors) {
  return !errors.empty() && errors.find_first_not_of("0123456789") == std::string_view::npos &&
         errors.find_first_not_of('0') != std::string_view::npos;
}

} // namespace

GpuHealth read_gpu_health(std::string_view csv) {
  GpuHealth health;
  while (!csv.empty()) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    const Line gpu = fields_of(csv.substr(0, end));
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (gpu[Field::index].empty()) {
      continue;
    }
    health.driver = gpu[Field::driver];
    const auto add = [&](const std::string& fault) {
      health.faults.push_back(fmt::format("GPU {} ({}): {}", printable(gpu[Field::index]),
                                          printable(gpu[Field::name]), fault));
    };
    const std::string reset =
        fmt::format("reset it: nvidia-smi --gpu-reset -i {}", printable(gpu[Field::index]));
    if (gpu[Field::unrepairable] == "Yes") {
      add("memory rows that cannot be remapped: have it replaced");
    } else if (gpu[Field::unmapped] == "Yes" || gpu[Field::unretired] == "Yes") {
      add("broken memory is taken out of use only by a reset; " + reset);
    } else if (is_some(gpu[Field::ecc_errors])) {
      add(fmt::format("{} uncorrectable ECC errors since the driver was loaded; {}",
                      gpu[Field::ecc_errors], reset));
    }
  }
  return health;
}

GpuHealth ask_gpu_health() {
  const CommandResult result = run_command(
      {.argv = {"nvidia-smi", k_query, "--format=csv,noheader,nounits"}, .limit = k_limit});
  if (result.ending.late) {
    throw EngineError(fmt::format(
        "nvidia-smi did not answer in {} s: does the driver hang? See dmesg", k_limit.count()));
  }
  if (!result.ending.good()) {
    const std::string_view said = result.errors.empty() ? result.out : result.errors;
    throw EngineError(
        fmt::format("nvidia-smi failed: {}", printable(trimmed(said.substr(0, said.find('\n'))))));
  }
  return read_gpu_health(result.out);
}

} // namespace dtrain
