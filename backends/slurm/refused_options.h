// Which options of a job an error of Slurm's is about, and which command lists their valid values.
#pragma once

#include <string>
#include <string_view>

namespace dtrain::slurm {

/// "--partition=nosuch (see sinfo)", of the options of a batch script; empty: not
/// known.
std::string refused_options(const std::string& script, std::string_view words);

} // namespace dtrain::slurm
