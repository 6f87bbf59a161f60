// The kernel's random numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dtrain {

/// Throws EngineError where the kernel has none.
void fill_random(std::span<unsigned char> bytes);

/// `bytes` of them in hexadecimal. Throws as fill_random() does.
std::string random_hex(std::size_t bytes);

} // namespace dtrain
