#include "backends/slurm/system.h"

namespace dtrain::slurm {

const batch::QueueSystem& queue_system() {
  static const batch::QueueSystem slurm = {
      .name = "Slurm",
      .engine = "slurm",
      .script = "script.sbatch",
      .log = "slurm.log",
      .logs = "slurm*.log",
      .forgotten = "sacct -j",
      .ping = "scontrol ping",
      .no_contact = "contact slurm controller",
      // Times as seconds since the epoch, whatever the user's own settings are, and arrays' lists
      // whole.
      .environment = {{"SLURM_TIME_FORMAT", "%s"}, {"SLURM_BITSTR_LEN", "0"}, {"LC_ALL", "C"}},
      .noise = {"Batch job submission failed: ", "error: "},
      .submit_command = [](const std::string& log) -> std::vector<std::string> {
        return {"sbatch", "--parsable", "--output=" + log, "--open-mode=append"};
      }};
  return slurm;
}

} // namespace dtrain::slurm
