// A number of bytes, for people.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

std::string bytes_text(std::int64_t bytes); ///< "500.0 MB"

} // namespace dtrain
