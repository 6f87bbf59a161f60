// Amounts as clusters write them: "500m" CPUs, "16Gi" of memory.
#pragma once

#include <optional>
#include <string_view>

namespace dtrain {

/// True for a positive one as people write it.
bool is_quantity(std::string_view text);

/// "250m", "12345n", "64Ki", "1.5G", "2e3" as a number; empty if it is not a quantity.
std::optional<double> quantity_of(std::string_view text);

} // namespace dtrain
