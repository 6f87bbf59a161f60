// What of a job Slurm's words of refusal are about, and which command says what there is.
#pragma once

#include <string>
#include <string_view>

namespace dtrain::slurm {

/// "--partition=nosuch (sinfo says what there is)", of the options of a batch script; empty: not
/// known.
std::string asked_for(const std::string& script, std::string_view words);

} // namespace dtrain::slurm
