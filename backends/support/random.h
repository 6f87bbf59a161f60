// The kernel's random numbers.
#pragma once

#include <cstddef>
#include <string>

namespace dtrain {

/// `bytes` of them in hexadecimal. Throws EngineError where the kernel has none.
std::string random_hex(std::size_t bytes);

} // namespace dtrain
