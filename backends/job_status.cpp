#include "backends/job_status.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace dtrain {

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 7> k_names{
      "QUEUING", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "SUSPENDED", "TERMINATED"};
  return k_names.at(static_cast<std::size_t>(phase));
}

std::string ending_text(const std::optional<int>& exit_code, const std::optional<int>& signal) {
  if (signal) {
    const char* name = sigabbrev_np(*signal);
    return name != nullptr ? fmt::format("signal {} (SIG{})", *signal, name)
                           : fmt::format("signal {}", *signal);
  }
  return fmt::format("exit code {}", exit_code.value_or(0));
}

std::string failure_text(const FailureCause& cause) {
  return fmt::format(
      "{}{}{} {}", cause.instance, cause.rank < 0 ? "" : fmt::format(" (rank {})", cause.rank),
      cause.node.empty() ? "" : " on " + cause.node,
      cause.exit_code || cause.signal ? "ended with " + ending_text(cause.exit_code, cause.signal)
                                      : "failed");
}

} // namespace dtrain
