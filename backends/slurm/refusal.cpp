#include "backends/slurm/refusal.h"

#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <vector>

namespace dtrain::slurm {

std::string asked_for(const std::string& script, std::string_view words) {
  struct Topic {
    std::string_view word; ///< Of Slurm's.
    std::vector<std::string_view> options;
  };
  static const std::vector<Topic> topics = {
      {"partition", {"partition", "account"}},
      {"account", {"account", "partition"}},
      {"qos", {"qos"}},
      {"feature", {"constraint"}},
      {"node name", {"nodelist", "exclude"}},
      {"reservation", {"reservation"}},
      {"node configuration",
       {"gpus", "gpus-per-task", "cpus-per-task", "mem-per-cpu", "ntasks", "constraint",
        "nodelist"}},
      {"time limit", {"time"}},
  };
  std::string asked;
  for (const Topic& topic : topics) {
    if (lower_case(words).find(topic.word) == std::string::npos) {
      continue;
    }
    for (const auto option : topic.options) {
      const std::string begin = fmt::format("#SBATCH --{}=", option);
      if (const auto at = script.find(begin); at != std::string::npos) {
        const auto value =
            std::string_view(script).substr(at + std::string_view("#SBATCH ").size());
        asked += fmt::format("{}{}", asked.empty() ? "" : " ", value.substr(0, value.find('\n')));
      }
    }
    break;
  }
  return asked;
}

} // namespace dtrain::slurm
