#include "trainer/run/fill.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/run/trained_model.h"

namespace trainer {
namespace {

/// Text of a token: the name of a special token, ## before a continuation.
std::string word_of(const Tokenizer& tokenizer, TokenId id) {
  const std::string text = tokenizer.decode(std::span(&id, 1));
  const std::size_t first = text.find_first_not_of(' ');
  return dtrain::printable(first == std::string::npos ? tokenizer.vocabulary().token(id)
                                                      : text.substr(first));
}

/// Encodes `text` as [CLS], its tokens, [SEP].
std::vector<TokenId> tokens_of(const FillOptions& options, Tokenizer& tokenizer,
                               std::size_t max_length) {
  require_utf8(options.text);
  const SpecialTokens& special = tokenizer.special();
  std::vector<TokenId> ids = {special.first};
  tokenizer.encode(options.text, ids);
  ids.push_back(special.last);
  if (std::find(ids.begin(), ids.end(), special.mask) == ids.end()) {
    throw UsageError(fmt::format("the text has no {0}; write {0} where a word is missing",
                                 tokenizer.vocabulary().token(special.mask)));
  }
  if (ids.size() > max_length) {
    throw UsageError(fmt::format("the text has {} tokens, and the model reads at most {}",
                                 ids.size(), max_length));
  }
  return ids;
}

} // namespace

dtrain::CommandTable fill_command(FillOptions& options) {
  dtrain::CommandTable table;
  table.name = "fill";
  table.summary = "Predict the missing words of a text";
  table.description =
      "Reads a BERT or RoBERTa model and prints, for each [MASK] (RoBERTa: <mask>) of TEXT, the "
      "most likely words and their probabilities.\n\nDIR is the --checkpoint-dir of a run, whose "
      "newest whole checkpoint is read, or a Hugging Face folder: config.json, model.safetensors, "
      "and vocab.txt, vocab.json and merges.txt, or tokenizer.json.";
  table.examples = {"# What a run has learned",
                    "dtrain-trainer fill --checkpoint=run1 \"In the beautiful season of [MASK] the "
                    "[MASK] shed their leaves.\""};
  table.options = {{.flags = "TEXT",
                    .target = &options.text,
                    .help = "The text, with one blank or several",
                    .required = true,
                    .positional = true},
                   {.flags = "--checkpoint",
                    .target = &options.checkpoint,
                    .metavar = "DIR",
                    .help = "Folder of the model",
                    .complete = dtrain::Complete::directory,
                    .required = true},
                   {.flags = "--top",
                    .target = &options.top,
                    .metavar = "N",
                    .help = "Words to print for each blank [5]",
                    .minimum = 1,
                    .maximum = 1000}};
  return table;
}

void fill(const FillOptions& options) {
  TrainedModel model(
      options.checkpoint, false,
      "which predicts the next word and fills no blanks; use dtrain-trainer generate");
  Tokenizer& tokenizer = model.tokenizer();
  const std::size_t words = model.words();
  const std::vector<TokenId> ids = tokens_of(options, tokenizer, model.max_length());
  std::vector<std::int32_t> blanks;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == tokenizer.special().mask) {
      blanks.push_back(static_cast<std::int32_t>(i));
    }
  }
  const std::vector<float> logits = model.logits(ids, ids.size(), blanks);

  std::size_t width = 4;
  struct Guess {
    std::size_t blank;
    std::string word;
    double probability;
  };
  std::vector<Guess> guesses;
  const auto top = std::min(static_cast<std::size_t>(options.top), words);
  for (std::size_t blank = 0; blank < blanks.size(); ++blank) {
    const auto of_blank = std::span(logits).subspan(blank * words, words);
    const double largest{*std::max_element(of_blank.begin(), of_blank.end())};
    const double sum =
        std::accumulate(of_blank.begin(), of_blank.end(), 0.0, [&](double all, float logit) {
          return all + std::exp(double{logit} - largest);
        });
    std::vector<TokenId> order(words);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                      [&](TokenId a, TokenId b) {
                        const float of_a = of_blank[static_cast<std::size_t>(a)];
                        const float of_b = of_blank[static_cast<std::size_t>(b)];
                        return of_a != of_b ? of_a > of_b : a < b;
                      });
    for (std::size_t i = 0; i < top; ++i) {
      const double logit{of_blank[static_cast<std::size_t>(order[i])]};
      guesses.push_back({blank + 1, word_of(tokenizer, order[i]), std::exp(logit - largest) / sum});
      width = std::max(width, guesses.back().word.size());
    }
  }
  fmt::print("BLANK  {:<{}}  PROBABILITY\n", "WORD", width);
  for (const Guess& guess : guesses) {
    fmt::print("{:<5}  {:<{}}  {:.4f}\n", guess.blank, guess.word, width, guess.probability);
  }
}

} // namespace trainer
