// What somebody meant who typed a word that is not known.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The candidate of `known` nearest to `word`, where it is near enough to be a slip: one edit
/// (a letter added, dropped, changed or swapped with its neighbour) for every three letters, or
/// the only one that begins so.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

} // namespace dtrain
