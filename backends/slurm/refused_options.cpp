#include "backends/slurm/refused_options.h"

#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <vector>

namespace dtrain::slurm {

std::string refused_options(const std::string& script, std::string_view words) {
  struct Topic {
    std::string_view word; ///< In Slurm's message.
    std::vector<std::string_view> options;
    std::string_view command = ""; ///< The command that lists what exists.
  };
  static const std::vector<Topic> topics = {
      {"account", {"account", "partition"}, "sacctmgr show associations where user=$USER"},
      {"partition", {"partition", "account"}, "sinfo"},
      {"qos", {"qos"}, "sacctmgr show qos"},
      {"feature", {"constraint"}, "sinfo -o '%N %f'"},
      {"node name", {"nodelist", "exclude"}, "sinfo -N"},
      {"reservation", {"reservation"}, "scontrol show reservations"},
      {"node configuration",
       {"gpus", "gpus-per-task", "cpus-per-task", "mem-per-cpu", "ntasks", "constraint",
        "nodelist"}},
      {"time limit", {"time"}},
      {"job array", {"array"}, "scontrol show config | grep MaxArraySize"},
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
    if (!topic.command.empty() && !asked.empty()) {
      asked += fmt::format(" (see {})", topic.command);
    }
    break;
  }
  return asked;
}

} // namespace dtrain::slurm
