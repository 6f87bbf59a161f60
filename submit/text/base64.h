// Base64 with padding, the form of secrets, credentials and YAML's !!binary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

std::string base64_encode(std::string_view bytes);

/// Line breaks are skipped. std::nullopt where `text` is not base64.
std::optional<std::string> base64_decode(std::string_view text);

} // namespace dtrain
