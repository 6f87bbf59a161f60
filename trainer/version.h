#pragma once

#include <string>

namespace trainer {

std::string trainer_version(); ///< "0.1.0"

} // namespace trainer
