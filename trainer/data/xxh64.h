// XXH64, Yann Collet's hash (the xxHash specification, github.com/Cyan4973/xxHash): tells files and
// data sets apart at the speed of memory. No protection against forgery.
#pragma once

#include <cstdint>
#include <span>

namespace trainer {

std::uint64_t xxh64(std::span<const std::uint8_t> bytes, std::uint64_t seed);

} // namespace trainer
