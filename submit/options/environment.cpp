#include "submit/options/environment.h"

#include <cstdlib>

namespace dtrain {

using namespace environment;

const char* EnvironmentVariable::value() const {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

const std::vector<EnvironmentVariable>& variables_of_dtrain() {
  static const std::vector<EnvironmentVariable> variables = {
      k_cgroups,    k_git_token,    k_trainer,  k_cache_home, k_config_home,
      k_state_home, k_certificates, k_no_color, k_force_color};
  return variables;
}

const std::vector<EnvironmentVariable>& variables_of_trainer() {
  static const std::vector<EnvironmentVariable> variables = {k_cpu_kernels, k_data_url};
  return variables;
}

} // namespace dtrain
