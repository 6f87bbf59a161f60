#include "backends/job_status.h"

#include <array>

namespace dtrain {

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 7> k_names{
      "QUEUING", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "SUSPENDED", "TERMINATED"};
  return k_names.at(static_cast<std::size_t>(phase));
}

} // namespace dtrain
