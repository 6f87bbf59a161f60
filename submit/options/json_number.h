// Whole numbers out of JSON that another program wrote. nlohmann/json's own get<int>() takes 1e45
// and 4294967297 for numbers too: the first is undefined behaviour, the second becomes 1.
#pragma once

#include <nlohmann/json.hpp>

#include <concepts>
#include <cstdint>
#include <utility>

namespace dtrain {

/// Throws nlohmann::json::type_error where `json` is no whole number, out_of_range where T does
/// not hold it.
template <std::integral T, typename Json>
T whole_number(const Json& json) {
  if (!json.is_number_integer()) {
    throw nlohmann::json::type_error::create(302, "not a whole number", &json);
  }
  const bool fits = json.is_number_unsigned()
                        ? std::in_range<T>(json.template get_ref<const std::uint64_t&>())
                        : std::in_range<T>(json.template get_ref<const std::int64_t&>());
  if (!fits) {
    throw nlohmann::json::out_of_range::create(406, "number out of range", &json);
  }
  return json.template get<T>();
}

} // namespace dtrain
