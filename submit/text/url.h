// Parts of addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

/// True for SCHEME://USER:PASSWORD@HOST/…
bool holds_password(std::string_view url);

/// `text` as one segment of a path or query: all but letters, digits and -._~ as %HH.
std::string escape_url(std::string_view text);

/// "a=1&b=%26" as its pairs, in their order. Empty where a pair has no key or no '=', or two
/// hexadecimal digits do not follow a '%'.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view text);

} // namespace dtrain
