#include "backends/slurm/cluster.h"

#include <cstdlib>
#include <fstream>
#include <strings.h>

namespace dtrain::slurm {
namespace {

/// The value of "ClusterName=…" in that file; empty: it has none, or cannot be read.
std::string cluster_in(const std::string& path) {
  std::ifstream file(path);
  constexpr std::string_view k_key = "ClusterName";
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find_first_not_of(" \t");
    const auto equals = line.find('=');
    if (begin == std::string::npos || equals == std::string::npos ||
        strncasecmp(line.c_str() + begin, k_key.data(), k_key.size()) != 0) {
      continue;
    }
    const auto value = std::min(line.find_first_not_of(" \t", equals + 1), line.size());
    return line.substr(value, line.find_first_of(" \t#\r", value) - value);
  }
  return "";
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

} // namespace

std::string cluster_here() {
  if (std::string chosen = variable("SLURM_CLUSTERS"); !chosen.empty()) {
    return chosen;
  }
  if (const std::string own = variable("SLURM_CONF"); !own.empty()) {
    return cluster_in(own);
  }
  for (const char* path : {"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf",
                           "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf"}) {
    if (std::string name = cluster_in(path); !name.empty()) {
      return name;
    }
  }
  return "";
}

} // namespace dtrain::slurm
