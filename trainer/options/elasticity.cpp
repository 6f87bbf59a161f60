#include "trainer/options/elasticity.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace trainer {
namespace {

/// Numbers with more divisors than any smaller one: a batch of so many passes is shared by the most
/// numbers of ranks.
constexpr std::int64_t k_highly_composite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

constexpr std::int64_t k_most_samples = 1 << 30;

std::int64_t largest_multiple(std::int64_t base, std::int64_t most) {
  std::int64_t found = base;
  for (const std::int64_t factor : k_highly_composite) {
    if (factor > most / base) {
      break;
    }
    found = base * factor;
  }
  return found;
}

std::vector<std::int64_t> ranks_that_share(std::int64_t samples, const ElasticityOptions& options) {
  std::set<std::int64_t> ranks;
  for (const std::int64_t pass : options.passes) {
    const std::int64_t most = samples % pass == 0 ? samples / pass : 0;
    for (std::int64_t divisor = 1; divisor * divisor <= most; ++divisor) {
      for (const std::int64_t count : {divisor, most / divisor}) {
        if (most % divisor == 0 && count >= options.fewest_ranks && count <= options.most_ranks) {
          ranks.insert(count);
        }
      }
    }
  }
  return {ranks.begin(), ranks.end()};
}

bool has(const std::vector<std::int64_t>& counts, std::int64_t ranks) {
  return std::find(counts.begin(), counts.end(), ranks) != counts.end();
}

} // namespace

ElasticBatch elastic_batch(const ElasticityOptions& options) {
  std::int64_t common = 1;
  std::set<std::int64_t> candidates;
  for (const std::int64_t pass : options.passes) {
    candidates.insert(largest_multiple(pass, options.most_samples));
    common = common <= k_most_samples ? std::lcm(common, pass) : common;
  }
  if (common <= k_most_samples) { // As in DeepSpeed, even where it is more than most_samples.
    candidates.insert(largest_multiple(common, options.most_samples));
  }
  ElasticBatch best{.samples = *std::min_element(options.passes.begin(), options.passes.end()),
                    .ranks = {}};
  for (const std::int64_t samples : candidates) {
    std::vector<std::int64_t> ranks = ranks_that_share(samples, options);
    const bool is_preferred =
        options.prefers_larger ? samples > best.samples : samples < best.samples;
    if (ranks.size() > best.ranks.size() || (ranks.size() == best.ranks.size() && is_preferred)) {
      best = {samples, std::move(ranks)};
    }
  }
  return best;
}

ElasticBatch elastic_batch(const ElasticityOptions& options, std::int64_t ranks) {
  ElasticBatch of_many = elastic_batch(options);
  if (!options.fits_any_ranks || has(of_many.ranks, ranks)) {
    return of_many;
  }
  std::int64_t best = 0;
  for (const std::int64_t pass : options.passes) {
    const std::int64_t samples = options.most_samples / (pass * ranks) * pass * ranks;
    const bool is_preferred = options.prefers_larger ? samples > best : samples < best;
    best = samples > 0 && (best == 0 || is_preferred) ? samples : best;
  }
  return best > 0 ? ElasticBatch{best, {ranks}} : of_many;
}

std::int64_t elastic_pass(const ElasticityOptions& options, std::int64_t samples,
                          std::int64_t ranks) {
  std::int64_t best = 0;
  for (const std::int64_t pass : options.passes) {
    best = samples % (ranks * pass) == 0 ? std::max(best, pass) : best;
  }
  return best;
}

} // namespace trainer
