#include "submit/options/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace dtrain {
namespace {

/// Damerau-Levenshtein distance in its optimal-alignment form: three rows of the edit matrix.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

constexpr std::size_t k_longest_slip = 64; ///< Longer words are not typed by hand.
constexpr std::size_t k_letters_an_edit = 3;
constexpr std::size_t k_shortest_prefix = 2;

} // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > k_longest_slip) {
    return std::nullopt;
  }
  const std::string_view bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::size_t allowed = std::max<std::size_t>(1, bare.size() / k_letters_an_edit);
  std::optional<std::string> best;
  std::size_t best_distance = allowed + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best || bare.size() < k_shortest_prefix) {
    return bare.size() < k_shortest_prefix ? std::nullopt : best;
  }
  const auto begins_so = [&](const std::string& candidate) { return candidate.starts_with(word); };
  if (std::count_if(known.begin(), known.end(), begins_so) == 1) {
    return *std::find_if(known.begin(), known.end(), begins_so);
  }
  return std::nullopt;
}

} // namespace dtrain
