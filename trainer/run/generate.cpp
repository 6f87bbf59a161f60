#include "trainer/run/generate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/random.h"
#include "trainer/run/trained_model.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

/// Granularity, in tokens, of the padded length of a forward pass.
constexpr std::size_t k_step = 64;

/// Samples a token from softmax(logits / temperature) over the top k; temperature 0: the likeliest.
TokenId draw(std::span<const float> logits, const GenerateOptions& options, std::uint64_t number) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t kept = options.temperature <= 0 ? 1
                           : options.top > 0
                               ? std::min(static_cast<std::size_t>(options.top), logits.size())
                               : logits.size();
  const auto at = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](TokenId a, TokenId b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  order.resize(kept);
  if (kept == 1) {
    return order.front();
  }
  std::vector<double> up_to(kept); // Cumulative weights.
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += std::exp((double{at(order[i])} - double{at(order.front())}) / options.temperature);
    up_to[i] = sum;
  }
  const double lot = sum * double{uniform(random_at(static_cast<std::uint64_t>(options.seed),
                                                    RandomStream::sampling, 0, number)[0])};
  const auto found = std::upper_bound(up_to.begin(), up_to.end() - 1, lot);
  return order[static_cast<std::size_t>(found - up_to.begin())];
}

/// The part of `text` after `printed`, up to the last whole character (to the end with `all`),
/// without control characters that a terminal would act on.
std::string printable_rest(std::string_view text, std::size_t& printed, bool all) {
  std::string_view rest = text.substr(std::min(printed, text.size()));
  constexpr std::size_t k_longest_character = 4;
  if (const std::size_t whole = unicode::invalid_utf8(rest);
      !all && whole != std::string_view::npos && rest.size() - whole < k_longest_character) {
    rest = rest.substr(0, whole); // Its remaining bytes are in tokens to come.
  }
  printed += rest.size();
  std::string shown;
  std::copy_if(rest.begin(), rest.end(), std::back_inserter(shown),
               [](unsigned char c) { return c == '\n' || c == '\t' || (c >= ' ' && c != 0x7f); });
  return shown;
}

} // namespace

dtrain::CommandTable generate_command(GenerateOptions& options) {
  dtrain::CommandTable table;
  table.name = "generate";
  table.summary = "Continue a text";
  table.description =
      "Reads a GPT-2 model and prints TEXT and the tokens that it adds, up to --tokens of them or "
      "the end of the text. With --temperature above 0 each token is sampled from the model's "
      "probabilities; else it is the most likely one.\n\nDIR is the --checkpoint-dir of a run, "
      "whose newest whole checkpoint is read, or a Hugging Face folder: config.json, "
      "model.safetensors, and vocab.json and merges.txt or tokenizer.json.";
  table.examples = {
      "dtrain-trainer generate --checkpoint=run1 \"In the beginning\"",
      "dtrain-trainer generate --checkpoint=gpt2 --temperature=0.8 --top=40 \"Once upon\""};
  table.options = {{.flags = "TEXT",
                    .target = &options.text,
                    .help = "Text to continue",
                    .required = true,
                    .positional = true},
                   {.flags = "--checkpoint",
                    .target = &options.checkpoint,
                    .metavar = "DIR",
                    .help = "Folder of the model",
                    .complete = dtrain::Complete::directory,
                    .required = true},
                   {.flags = "--tokens",
                    .target = &options.tokens,
                    .metavar = "N",
                    .help = "Tokens to add at most [50]",
                    .minimum = 1,
                    .maximum = 1 << 20},
                   {.flags = "--temperature",
                    .target = &options.temperature,
                    .metavar = "T",
                    .help = "Divide logits by this and sample; 0: take the most likely token [0]"},
                   {.flags = "--top",
                    .target = &options.top,
                    .metavar = "N",
                    .help = "Sample only among the N most likely tokens [all]",
                    .minimum = 1,
                    .maximum = 1 << 20},
                   {.flags = "--seed",
                    .target = &options.seed,
                    .metavar = "N",
                    .help = "Seed of the sampling; the same seed gives the same text [0]",
                    .minimum = 0}};
  return table;
}

void generate(const GenerateOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature))) {
    throw UsageError(fmt::format("--temperature={}: must be 0 or more", options.temperature));
  }
  require_utf8(options.text);
  TrainedModel model(options.checkpoint, true,
                     "which fills blanks and does not continue a text; use dtrain-trainer fill");
  Tokenizer& tokenizer = model.tokenizer();
  const TokenId end = tokenizer.special().last;
  std::vector<TokenId> ids;
  tokenizer.encode(options.text, ids);
  if (ids.empty()) {
    ids.push_back(tokenizer.special().first);
  }
  if (ids.size() >= model.max_length()) {
    throw UsageError(fmt::format("the text has {} tokens, and the model can continue at most {}",
                                 ids.size(), model.max_length() - 1));
  }
  std::size_t printed = 0;
  const auto print = [&](bool all) {
    fmt::print("{}", printable_rest(tokenizer.decode(ids), printed, all));
    std::fflush(stdout);
  };
  print(false);
  for (std::int64_t i = 0; i < options.tokens && ids.size() < model.max_length(); ++i) {
    const std::size_t length = ids.size();
    const std::size_t padded = (length + k_step - 1) / k_step * k_step;
    std::vector<TokenId> row = ids;
    row.resize(std::min(padded, model.max_length()), end);
    const std::vector<float> logits =
        model.logits(row, length, {static_cast<std::int32_t>(length - 1)});
    const TokenId next = draw(logits, options, static_cast<std::uint64_t>(i));
    if (next == end) {
      break;
    }
    ids.push_back(next);
    print(false);
  }
  print(true);
  fmt::print("\n");
}

} // namespace trainer
