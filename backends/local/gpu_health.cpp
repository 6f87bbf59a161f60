#include "backends/local/gpu_health.h"

#include "backends/support/os/subprocess.h"
#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace dtrain {
namespace {

constexpr std::chrono::seconds k_limit{
    20}; ///< The driver of a machine that nobody uses loads first.
enum Field : std::size_t {
  index,
  name,
  driver,
  ecc_errors,
  unrepairable,
  unmapped,
  unretired,
  uuid,
  count
};

/// Fields of the second query's lines, "action 0, Reset".
enum Action : std::size_t { of, wanted };
constexpr std::string_view k_action = "action ";

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

bool says(const Line& fields, std::string_view what) {
  return std::any_of(fields.begin(), fields.end(), [&](std::string_view field) {
    return field.find(what) != std::string_view::npos;
  });
}

/// "GPU 2 (NVIDIA H100)"; without a name that is an error in brackets.
std::string text_of(std::string_view index, std::string_view name) {
  return name.empty() || name.starts_with('[')
             ? "GPU " + printable(index)
             : fmt::format("GPU {} ({})", printable(index), printable(name));
}

/// Empty: none.
std::string fault_in(const Line& gpu) {
  const std::string index = printable(gpu[Field::index]);
  const std::string reset = fmt::format("reset it: nvidia-smi --gpu-reset -i {}", index);
  std::string fault;
  if (says(gpu, "GPU is lost")) {
    fault = "it has fallen off the bus; restart the machine";
  } else if (gpu[Field::unrepairable] == "Yes") {
    fault = "it has memory rows that cannot be remapped; replace it";
  } else if (gpu[Field::unmapped] == "Yes" || gpu[Field::unretired] == "Yes") {
    fault = "it has bad memory that only a reset takes out of use; " + reset;
  } else if (says(gpu, "requires reset")) {
    fault = "it needs a reset; " + reset;
  } else if (is_some(gpu[Field::ecc_errors])) {
    fault = fmt::format("{} uncorrectable ECC errors since the driver was loaded; {}",
                        gpu[Field::ecc_errors], reset);
  }
  return fault.empty() ? "" : text_of(index, gpu[Field::name]) + ": " + fault;
}

/// The recovery action that the driver wants after an error (an Xid, of which only the kernel's log
/// says more). Its counters may be zero then. Empty: nothing that would make a job fail.
std::string fault_after_error(const Line& line, std::string_view name) {
  const std::string index = printable(line[Action::of]);
  const std::string_view action = line[Action::wanted];
  const bool reboots = action == "Reboot";
  if (!reboots && action != "Reset" && action != "Drain and Reset") {
    return "";
  }
  return fmt::format(
      "{}: it stopped working after an error (an Xid, see dmesg); {}", text_of(index, name),
      reboots ? "restart the machine" : "reset it: nvidia-smi --gpu-reset -i " + index);
}

/// "  MIG 3g.20gb Device 0: (UUID: MIG-…)"
std::string uuid_in(std::string_view line) {
  constexpr std::string_view k_before = "(UUID: ";
  const std::size_t begin = std::min(line.find(k_before), line.size());
  const std::string_view rest = line.substr(std::min(begin + k_before.size(), line.size()));
  return std::string(rest.substr(0, rest.find(')')));
}

} // namespace

// Drivers before R570 do not know the second question. MIG's names are nobody's but a
// CUDA_VISIBLE_DEVICES's.
const char* const k_gpu_health_script =
    R"(command -v nvidia-smi >/dev/null || { echo none; exit; }
nvidia-smi --query-gpu=index,name,driver_version,ecc.errors.uncorrected.volatile.total,)"
    R"(remapped_rows.failure,remapped_rows.pending,retired_pages.pending,uuid )"
    R"(--format=csv,noheader,nounits 2>&1 || echo "failed $?"
nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv,noheader 2>&1 | sed 's/^/action /'
case ${CUDA_VISIBLE_DEVICES-} in *MIG-*) nvidia-smi -L 2>&1 || : ;; esac
)";

std::string GpuHealth::fault_of(std::string_view device) const {
  constexpr std::string_view k_part = "MIG-";
  for (const GpuReport& gpu : gpus) {
    const bool is_whole = device == gpu.index || (device.starts_with("GPU-") &&
                                                  std::string_view(gpu.uuid).starts_with(device));
    const bool is_part =
        device.starts_with(k_part) &&
        (std::find(gpu.parts.begin(), gpu.parts.end(), device) != gpu.parts.end() ||
         (!gpu.uuid.empty() && device.substr(k_part.size()).starts_with(gpu.uuid)));
    if (is_whole || is_part) {
      return gpu.fault;
    }
  }
  return failure;
}

GpuHealth read_gpu_health(std::string_view text) {
  GpuHealth health;
  std::string said;
  GpuReport* listed = nullptr;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const Line fields = fields_of(line);
    const std::string_view index = fields[Field::index];
    if (line == "none") {
      health.is_known = false;
    } else if (!index.empty() && index.find_first_not_of("0123456789") == std::string_view::npos) {
      health.driver = printable(fields[Field::driver]);
      health.gpus.push_back({std::string(index),
                             std::string(fields[Field::name]),
                             std::string(fields[Field::uuid]),
                             {},
                             fault_in(fields)});
    } else if (line.starts_with(k_action)) {
      const Line action = fields_of(line.substr(k_action.size()));
      const auto its =
          std::find_if(health.gpus.begin(), health.gpus.end(),
                       [&](const GpuReport& gpu) { return gpu.index == action[Action::of]; });
      if (its != health.gpus.end() && its->fault.empty()) {
        its->fault = fault_after_error(action, its->name);
      }
    } else if (line.starts_with("failed ")) {
      health.failure = "nvidia-smi failed: " + (said.empty() ? printable(line) : said);
    } else if (const auto whole = uuid_in(line); whole.starts_with("GPU-")) {
      const auto its = std::find_if(health.gpus.begin(), health.gpus.end(),
                                    [&](const GpuReport& gpu) { return gpu.uuid == whole; });
      listed = its == health.gpus.end() ? nullptr : &*its;
    } else if (line.starts_with("MIG ") && listed != nullptr) {
      listed->parts.push_back(uuid_in(line));
    } else if (said.empty()) {
      said = printable(line);
    }
  }
  return health;
}

GpuHealth ask_gpu_health() {
  const CommandResult result =
      run_command({.argv = {"sh", "-c", k_gpu_health_script}, .limit = k_limit});
  GpuHealth health = read_gpu_health(result.out);
  if (result.ending.late) {
    health.failure = silent_nvidia_smi(k_limit.count());
  }
  return health;
}

std::string silent_nvidia_smi(std::int64_t seconds) {
  return fmt::format("nvidia-smi did not answer within {} s; the driver may hang, see dmesg",
                     seconds);
}

} // namespace dtrain
