// What dtrain's tokenizers make of text on standard input, for tests and benches beside other
// programs' tokenizers.
//   bench-tokens ids VOCABULARY [OPTION…]     a line of numbers for each line
//   bench-tokens encode VOCABULARY [ROUNDS]   {"tokens": …, "seconds": [ … ]}, of one thread
//   bench-tokens train SIZE [ROUNDS]          {"tokens": …, "seconds": [ … ]}; the last round's
//                                             vocabulary goes to standard error
//   bench-tokens train-bpe SIZE [ROUNDS]      the same of a byte-level BPE
// Options: cased, keep-accents, strip-accents, dirty, whole-cjk.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "trainer/clock.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/train_vocabulary.h"

namespace {

using Words = std::vector<std::string>;

trainer::TokenizerOptions options_of(const Words& words) {
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  trainer::TokenizerOptions options;
  options.lowercase = !has("cased");
  if (has("keep-accents") || has("strip-accents")) {
    options.strip_accents = has("strip-accents");
  }
  options.clean = !has("dirty");
  options.split_cjk = !has("whole-cjk");
  return options;
}

/// Calls take(line) for each line of `text`.
template <typename Take>
void each_line(const std::string& text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    take(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

void print_ids(const std::string& text, trainer::Tokenizer& tokenizer) {
  std::vector<trainer::TokenId> ids;
  each_line(text, [&](std::string_view line) {
    ids.clear();
    tokenizer.encode(line, ids);
    fmt::print("{}\n", fmt::join(ids, " "));
  });
}

void print_times(std::size_t tokens, const std::vector<double>& seconds) {
  fmt::print("{{\"tokens\": {}, \"seconds\": [{}]}}\n", tokens, fmt::join(seconds, ", "));
}

void run(const Words& words) {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const std::string& what = words.at(0);
  const int rounds = words.size() > 2 && what != "ids" ? std::stoi(words[2]) : 1;
  std::vector<double> seconds;
  std::size_t count = 0;
  if (what == "ids") {
    const auto tokenizer = trainer::load_tokenizer(
        words.at(1), words.size() > 2 ? std::optional(options_of(words)) : std::nullopt);
    print_ids(text, *tokenizer);
    return;
  }
  Words vocabulary;
  for (int round = 0; round < rounds; ++round) {
    const double started = trainer::now();
    if (what == "encode") {
      const auto tokenizer = trainer::load_tokenizer(words.at(1));
      std::vector<trainer::TokenId> ids;
      each_line(text, [&](std::string_view line) { tokenizer->encode(line, ids); });
      count = ids.size();
    } else if (what == "train-bpe") {
      trainer::ByteBpeTrainer trainer(trainer::byte_bpe_special_names(false));
      each_line(text, [&](std::string_view line) { trainer.read(line); });
      vocabulary = trainer.train({.size = std::stoul(words.at(1))}).tokens;
      count = vocabulary.size();
    } else {
      trainer::WordPieceTrainer trainer{trainer::TokenizerOptions()};
      each_line(text, [&](std::string_view line) { trainer.read(line); });
      vocabulary = trainer.train({.size = std::stoul(words.at(1))});
      count = vocabulary.size();
    }
    seconds.push_back(trainer::now() - started);
  }
  print_times(count, seconds);
  for (const std::string& token : vocabulary) {
    fmt::print(stderr, "{}\n", token);
  }
}

} // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-tokens: {}\n", error.what());
    return 1;
  }
}
