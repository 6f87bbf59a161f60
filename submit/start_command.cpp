#include "submit/start_command.h"

#include "submit/job_roles.h"
#include "submit/template/render.h"

namespace dtrain {

std::vector<std::string> start_command(const JobSpec& job) {
  const JobType* type = find_job_type(job.type);
  if (type == nullptr || !type->has_ray) {
    return job.command;
  }
  std::vector<std::string> command = {
      "sh", "-c", std::string(builtin_template("launchers/ray.sh").text), "ray"};
  command.insert(command.end(), job.command.begin(), job.command.end());
  return command;
}

} // namespace dtrain
