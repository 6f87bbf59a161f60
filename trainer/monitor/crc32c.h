#pragma once

#include <cstdint>
#include <string_view>

namespace trainer {

/// CRC-32C (Castagnoli), reflected polynomial 0x82F63B78.
std::uint32_t crc32c(std::string_view bytes);

} // namespace trainer
