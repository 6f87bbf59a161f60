#include "trainer/options/batch.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/options/parts.h"

namespace trainer {
namespace {

constexpr std::int64_t k_rows = 64; ///< Of a pass, by default.

/// Of ranks that come and go, and keep the global batch.
std::string settle_elastic_batch(TrainerOptions& options) {
  if (options.accumulation_steps > 0) {
    throw UsageError(
        fmt::format("--accumulation-steps={}: elastic workers choose the number of passes to keep "
                    "a global batch of {}; drop it, --batch-size is the most samples of a pass",
                    options.accumulation_steps, options.global_batch));
  }
  options.batch_size = options.batch_size > 0 ? options.batch_size : k_rows;
  options.accumulation_steps = 1;
  return fmt::format("a step has {} samples for any number of workers, in passes of at most {}",
                     options.global_batch, options.batch_size);
}

/// What the file's elasticity says of so many ranks.
void apply_elasticity(TrainerOptions& options, int ranks, bool is_elastic) {
  const ElasticityOptions& elastic = *options.elastic;
  const ElasticBatch batch = is_elastic ? elastic_batch(elastic) : elastic_batch(elastic, ranks);
  if (options.global_batch + options.batch_size + options.accumulation_steps > 0) {
    throw UsageError(fmt::format("--global-batch-size, --batch-size, --accumulation-steps: "
                                 "elasticity in --config={} chooses them; drop them",
                                 dtrain::printable(options.config)));
  }
  options.global_batch = batch.samples;
  options.batch_size = is_elastic ? *std::max_element(elastic.passes.begin(), elastic.passes.end())
                                  : elastic_pass(elastic, batch.samples, ranks);
  if (!is_elastic && (options.batch_size == 0 || std::find(batch.ranks.begin(), batch.ranks.end(),
                                                           ranks) == batch.ranks.end())) {
    throw UsageError(fmt::format("{}: {} ranks cannot share elasticity's {} samples in passes of "
                                 "{}; use {} ranks, or --min-workers for any number",
                                 dtrain::printable(options.config), ranks, batch.samples,
                                 fmt::join(elastic.passes, ", "), fmt::join(batch.ranks, ", ")));
  }
}

} // namespace

std::string settle_batch(TrainerOptions& options, int ranks, bool is_elastic) {
  if (options.elastic) {
    apply_elasticity(options, ranks, is_elastic);
  }
  if (is_elastic && options.global_batch > 0) {
    return settle_elastic_batch(options);
  }
  const std::int64_t global = options.global_batch;
  std::int64_t& rows = options.batch_size;
  std::int64_t& passes = options.accumulation_steps;
  const bool is_asked = global > 0 || !options.config.empty();
  const auto from = [&](std::int64_t value, const char* flag, const char* key) {
    if (value > 0 && options.elastic) {
      return fmt::format("elasticity={}", value);
    }
    const bool is_flag =
        options.config.empty() ||
        std::find(options.given.begin(), options.given.end(), flag) != options.given.end();
    return value == 0 ? std::string() : fmt::format("{}={}", is_flag ? flag : key, value);
  };
  const std::string given_global = from(global, "--global-batch-size", "train_batch_size");
  const std::string given_rows = from(rows, "--batch-size", "train_micro_batch_size_per_gpu");
  const std::string given_passes =
      from(passes, "--accumulation-steps", "gradient_accumulation_steps");
  const auto share = [&](std::int64_t parts, const std::string& of) {
    if (global % parts != 0) {
      throw UsageError(fmt::format("{}: is not a multiple of {}", given_global, of));
    }
    return global / parts;
  };
  const std::string of_ranks = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (global > 0 && rows > 0 && passes > 0) {
    if (global != rows * passes * ranks) {
      throw UsageError(fmt::format("{}: is not {} × {} × {} = {}; drop one of them", given_global,
                                   given_rows, given_passes, of_ranks, rows * passes * ranks));
    }
  } else if (global > 0 && rows > 0) {
    passes = share(rows * ranks, fmt::format("{} × {}", given_rows, of_ranks));
  } else if (global > 0) {
    passes = std::max<std::int64_t>(passes, 1);
    rows = share(passes * ranks,
                 given_passes.empty() ? of_ranks : fmt::format("{} × {}", given_passes, of_ranks));
  } else {
    rows = rows > 0 ? rows : k_rows;
    passes = std::max<std::int64_t>(passes, 1);
  }
  if (given_rows.empty() && rows > k_most_rows) {
    throw UsageError(fmt::format("{}: makes passes of {} samples, where {} are the most; give {}",
                                 given_global, rows, k_most_rows,
                                 options.config.empty()
                                     ? "--batch-size, or more --accumulation-steps"
                                     : "train_micro_batch_size_per_gpu"));
  }
  if (!is_asked) {
    return "";
  }
  const auto source = [](const std::string& given, const char* otherwise) {
    return given.empty() ? otherwise : given.substr(0, given.find('='));
  };
  const char* inferred = given_global.empty() ? "by default" : "inferred";
  return fmt::format("a step has {} samples ({}): {} per pass and rank ({}) × {} pass{} ({}) × {}",
                     rows * passes * ranks, source(given_global, "inferred"), rows,
                     source(given_rows, inferred), passes, passes == 1 ? "" : "es",
                     source(given_passes, inferred), of_ranks);
}

} // namespace trainer
