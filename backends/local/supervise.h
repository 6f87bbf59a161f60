// The supervisor's entry point: `dtrain supervise DIR`, started by LocalBackend::submit and hidden
// from --help. Returns the process's exit status.
#pragma once

#include <string>
#include <vector>

namespace dtrain {

int supervise_main(const std::vector<std::string>& args);

} // namespace dtrain
