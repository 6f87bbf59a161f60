#include "trainer/text/tokenize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

#include "submit/errors.h"
#include "trainer/clock.h"
#include "trainer/data/bytes.h"
#include "trainer/data/token_shards.h"
#include "trainer/errors.h"
#include "trainer/monitor/console.h"
#include "trainer/text/byte_bpe.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/train_vocabulary.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

constexpr double k_megabyte = 1e6;
constexpr std::size_t k_least_row = 8;
constexpr std::int64_t k_bert_size = 30'522;
constexpr std::int64_t k_gpt2_size = 50'257;
constexpr std::int64_t k_roberta_size = 50'265;
constexpr const char* k_byte_bpe = "bpe";
constexpr const char* k_roberta = "roberta";

/// The texts, mapped or read, known to be UTF-8.
class Texts {
 public:
  explicit Texts(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      texts_.push_back({path, read(path)});
      const std::string_view text = texts_.back().view();
      if (const std::size_t wrong = unicode::invalid_utf8(text); wrong != std::string_view::npos) {
        const auto line = std::count(text.begin(), text.begin() + std::ptrdiff_t(wrong), '\n') + 1;
        throw DataError(fmt::format("{}, line {}: the byte 0x{:02x} is not UTF-8; convert the text "
                                    "first, as iconv -f LATIN1 -t UTF-8 does",
                                    dtrain::printable(path), line,
                                    static_cast<unsigned char>(text[wrong])));
      }
      bytes_ += text.size();
    }
  }

  std::size_t bytes() const { return bytes_; }

  /// take(line, bytes read so far), for each line of each text; a text ends with an empty one.
  template <typename Take>
  void each_line(const Take& take) const {
    std::size_t before = 0;
    for (const Text& text : texts_) {
      const std::string_view all = text.view();
      for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        take(all.substr(at, end - at), before + end);
        at = end + 1;
      }
      before += all.size();
      take(std::string_view(), before);
    }
  }

 private:
  struct Text {
    std::string path;
    Bytes bytes;
    std::string_view view() const {
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
  };

  static Bytes read(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (path == "-") {
      return {std::vector<std::uint8_t>(std::istreambuf_iterator<char>(std::cin), {})};
    }
    const std::uintmax_t size = fs::file_size(path, error);
    auto bytes = error ? std::nullopt : Bytes::map(path, 0, size);
    if (!bytes && size != 0) {
      throw DataError(fmt::format("{}: cannot read this text: {}", dtrain::printable(path),
                                  error ? error.message() : "it is not a regular file"));
    }
    return bytes.value_or(Bytes());
  }

  std::vector<Text> texts_;
  std::size_t bytes_ = 0;
};

/// Tokens into rows. Those of a vocabulary with a mask each have their first and their last token;
/// else a row goes on where the one before it ends.
class Rows {
 public:
  Rows(TokenSetWriter& writer, const SpecialTokens& special, std::size_t length, bool lines)
      : writer_(writer), special_(special), length_(length), lines_(lines),
        ends_(special.has_mask() ? 1 : 0), row_(ends_, special.first) {}

  /// A line's; one without tokens ends a text.
  void add(std::span<const TokenId> tokens) {
    tokens_ += tokens.size();
    if (tokens.empty() && !lines_ && row_.size() > ends_ && row_.back() != special_.last) {
      put(special_.last);
    }
    for (const TokenId token : tokens) {
      put(token);
    }
    if (lines_) {
      end_row();
    }
  }

  void end_row() {
    if (row_.size() > ends_) {
      if (ends_ > 0 && row_.back() != special_.last) {
        row_.push_back(special_.last);
      }
      writer_.add(row_);
      row_.resize(ends_);
    }
  }

  std::uint64_t tokens() const { return tokens_; }

 private:
  void put(TokenId token) {
    row_.push_back(token);
    if (row_.size() + ends_ == length_) {
      end_row();
    }
  }

  TokenSetWriter& writer_;
  SpecialTokens special_;
  std::size_t length_;
  bool lines_;
  std::size_t ends_; ///< Tokens that begin a row, and so that end it.
  std::vector<TokenId> row_;
  std::uint64_t tokens_ = 0;
};

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / k_megabyte);
}

/// What is tokenized of a line: its end, too, where `with_end`. A blank one, which ends a document,
/// has none.
std::string_view text_of(std::string_view line, bool with_end, std::string& buffer) {
  if (!with_end || line.empty()) {
    return line;
  }
  buffer.assign(line).push_back('\n');
  return buffer;
}

std::unique_ptr<Tokenizer> take_vocabulary(const TokenizeOptions& options,
                                           const TokenizerOptions& words, Console& console) {
  auto tokenizer =
      load_tokenizer(options.vocabulary, options.cased ? std::optional(words) : std::nullopt);
  const bool is_word_piece = dynamic_cast<const WordPiece*>(tokenizer.get()) != nullptr;
  copy_tokenizer(options.vocabulary, options.output,
                 options.cased && is_word_piece ? std::optional(words) : std::nullopt);
  console.choices({{"vocabulary", fmt::format("{} tokens of {}, {}",
                                              with_commas(double(tokenizer->vocabulary().size())),
                                              options.vocabulary, tokenizer->kind())}});
  return tokenizer;
}

/// Of the texts that the trainer then has read.
template <typename Trainer>
auto train_vocabulary(Trainer& trainer, const TokenizeOptions& options, std::int64_t size,
                      const Texts& texts, Console& console) {
  const bool with_end = options.type == k_byte_bpe && !options.lines;
  const auto total = static_cast<std::int64_t>(texts.bytes() >> 10);
  std::string buffer;
  texts.each_line([&](std::string_view line, std::size_t done) {
    trainer.read(text_of(line, with_end, buffer));
    console.progress(static_cast<std::int64_t>(done >> 10), total, "KiB read");
  });
  const VocabularyTraining training{.size = static_cast<std::size_t>(size),
                                    .least = static_cast<std::uint64_t>(options.min_frequency)};
  return trainer.train(training, [&](std::size_t count) {
    console.progress(static_cast<std::int64_t>(count), size, "token");
  });
}

[[noreturn]] void refuse_text_without_words(const TokenizeOptions& options) {
  throw DataError(fmt::format("{}: has no words to make a vocabulary of",
                              dtrain::printable(options.texts.front())));
}

void make_word_piece(const TokenizeOptions& options, const TokenizerOptions& words,
                     const Texts& texts, Console& console) {
  const std::int64_t size = options.size == 0 ? k_bert_size : options.size;
  WordPieceTrainer trainer(words);
  const auto tokens = train_vocabulary(trainer, options, size, texts, console);
  if (tokens.size() > static_cast<std::size_t>(size)) {
    throw UsageError(fmt::format(
        "--vocabulary-size={}: must be at least {}, the number of different characters in the text",
        size, tokens.size()));
  }
  if (tokens.size() == word_piece_special_names().size()) {
    refuse_text_without_words(options);
  }
  save_word_piece(tokens, words, options.output);
}

void make_byte_bpe(const TokenizeOptions& options, const Texts& texts, Console& console) {
  const bool is_roberta = options.type == k_roberta;
  const std::int64_t size = is_roberta ? k_roberta_size : k_gpt2_size;
  ByteBpeTrainer trainer(byte_bpe_special_names(is_roberta));
  const auto made =
      train_vocabulary(trainer, options, options.size == 0 ? size : options.size, texts, console);
  if (trainer.has_read_none()) {
    refuse_text_without_words(options);
  }
  save_byte_bpe(made.tokens, made.merges, options.output);
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizeOptions& options, const Texts& texts,
                                          Console& console) {
  TokenizerOptions words;
  words.lowercase = !options.cased;
  if (!options.vocabulary.empty()) {
    return take_vocabulary(options, words, console);
  }
  const double started = now();
  if (options.type == k_byte_bpe || options.type == k_roberta) {
    make_byte_bpe(options, texts, console);
  } else {
    make_word_piece(options, words, texts, console);
  }
  auto tokenizer = load_tokenizer(options.output);
  console.choices(
      {{"vocabulary", fmt::format("{} tokens, {}, made of {} in {:.1f} s",
                                  with_commas(double(tokenizer->vocabulary().size())),
                                  tokenizer->kind(), megabytes(texts.bytes()), now() - started)}});
  return tokenizer;
}

/// Throws UsageError for options that contradict each other.
void check(const TokenizeOptions& options) {
  if (!(options.held_out >= 0 && options.held_out < 100)) {
    throw UsageError(
        fmt::format("--held-out={}: must be from 0 to less than 100", options.held_out));
  }
  const TokenizeOptions none;
  if (!options.vocabulary.empty()) {
    const char* const flag = options.type != none.type                     ? "--vocabulary-type"
                             : options.size != none.size                   ? "--vocabulary-size"
                             : options.min_frequency != none.min_frequency ? "--min-frequency"
                                                                           : nullptr;
    if (flag != nullptr) {
      throw UsageError(fmt::format("{}: is for a vocabulary that is made of the texts; drop it or "
                                   "--vocabulary",
                                   flag));
    }
  }
  if (options.type != k_byte_bpe && options.type != k_roberta) {
    return;
  }
  if (options.cased) {
    throw UsageError(fmt::format("--cased: is for WordPiece; a byte-level BPE always keeps capital "
                                 "letters and accents; drop it or --vocabulary-type={}",
                                 options.type));
  }
  const auto& special = byte_bpe_special_names(options.type == k_roberta);
  const auto least = static_cast<std::int64_t>(ByteBpeTrainer::k_bytes + special.size());
  if (options.size != none.size && options.size < least) {
    throw UsageError(fmt::format("--vocabulary-size={}: must be at least {} with "
                                 "--vocabulary-type={}: the 256 bytes and {}",
                                 options.size, least, options.type, fmt::join(special, ", ")));
  }
}

} // namespace

dtrain::CommandTable tokenize_command(TokenizeOptions& options) {
  dtrain::CommandTable table;
  table.name = "tokenize";
  table.summary = "Turn text into tokens to train a language model on";
  table.description =
      "Makes a vocabulary from the texts (or takes an existing one), WordPiece like BERT's or, "
      "with --vocabulary-type=roberta or bpe, byte-level BPE like RoBERTa's or GPT-2's, tokenizes "
      "the texts with it, and writes them to a folder for --data of dtrain-trainer. The "
      "texts are UTF-8; a blank line ends a document, and so does the end of a file.\n\nRows have "
      "--length tokens, [CLS] and [SEP] (or <s> and </s>) included. They are packed with "
      "documents, separated by [SEP]; with --lines each line has rows of its own, padded with "
      "[PAD]. With a vocabulary like GPT-2's, <|endoftext|> separates documents, line ends are "
      "kept, and a row continues where the one before it ends.\n\nThe folder holds manifest.json, "
      "the rows in files that "
      "training maps into memory, and the vocabulary: vocab.txt, or vocab.json and merges.txt, "
      "with tokenizer_config.json, or the files of --vocabulary.";
  table.examples = {
      "# A vocabulary of 8,192 tokens, and rows of 128",
      "dtrain-trainer tokenize --vocabulary-size=8192 --output=tokens wiki.txt",
      "# For --model=gpt2",
      "dtrain-trainer tokenize --vocabulary-type=bpe --length=1024 --output=tokens wiki.txt",
      "# With the vocabulary of a model",
      "dtrain-trainer tokenize --vocabulary=bert-base-uncased --output=tokens a.txt b.txt"};
  table.options = {
      {.flags = "TEXT",
       .target = &options.texts,
       .help = "Text files; - is standard input",
       .complete = dtrain::Complete::file,
       .required = true,
       .positional = true},
      {.flags = "-o,--output",
       .target = &options.output,
       .metavar = "DIR",
       .help = "Folder to write; an existing token set is replaced",
       .complete = dtrain::Complete::directory,
       .required = true},
      {.flags = "--vocabulary",
       .target = &options.vocabulary,
       .metavar = "PATH",
       .help = "Take this vocabulary: a folder with vocab.txt (WordPiece), with vocab.json and "
               "merges.txt (byte-level BPE) or with tokenizer.json (either), or one of these files "
               "[made from the texts]",
       .complete = dtrain::Complete::file},
      {.flags = "--vocabulary-type",
       .target = &options.type,
       .metavar = "TYPE",
       .help = "Kind of the vocabulary that is made: wordpiece (as BERT's) or roberta (byte-level "
               "BPE), for --model=bert and roberta; bpe (byte-level BPE, for --model=gpt2) "
               "[wordpiece]",
       .complete = dtrain::Complete::choices,
       .choices = {"wordpiece", k_roberta, k_byte_bpe}},
      {.flags = "--vocabulary-size",
       .target = &options.size,
       .metavar = "N",
       .help = "Largest size of the vocabulary that is made [30522, of roberta 50265, of bpe "
               "50257]",
       .minimum = 16,
       .maximum = 1 << 24},
      {.flags = "--min-frequency",
       .target = &options.min_frequency,
       .metavar = "N",
       .help = "Smallest count of a pair of tokens to merge them [2]",
       .minimum = 1},
      {.flags = "--cased",
       .target = &options.cased,
       .help = "Keep capital letters and accents, as roberta and bpe always do"},
      {.flags = "--length",
       .target = &options.length,
       .metavar = "N",
       .help = "Tokens per row [128]",
       .minimum = k_least_row,
       .maximum = 1 << 16},
      {.flags = "--lines",
       .target = &options.lines,
       .help = "Give each line rows of its own, padded, instead of packing them"},
      {.flags = "--held-out",
       .target = &options.held_out,
       .metavar = "PERCENT",
       .help = "Percentage of rows, evenly spread, held out for evaluation [1]"},
      {.flags = "--no-progress",
       .target = &options.no_progress,
       .help = "Show no progress bar, even on a terminal"}};
  return table;
}

void tokenize(const TokenizeOptions& options) {
  check(options);
  Console console(false, !options.no_progress);
  const Texts texts(options.texts);
  if (texts.bytes() == 0) {
    throw DataError(fmt::format("{}: is empty; there is nothing to train on",
                                dtrain::printable(options.texts.front())));
  }
  const auto tokenizer = make_tokenizer(options, texts, console);
  const double started = now();
  const auto length = static_cast<std::size_t>(options.length);
  TokenSetWriter writer(options.output, {.length = length,
                                         .vocabulary = tokenizer->vocabulary().size(),
                                         .special = tokenizer->special(),
                                         .is_packed = !options.lines,
                                         .held_out = options.held_out / 100});
  Rows rows(writer, tokenizer->special(), length, options.lines);
  const bool with_end = !tokenizer->special().has_mask() && !options.lines;
  std::string buffer;
  std::vector<TokenId> tokens;
  const auto total = static_cast<std::int64_t>(texts.bytes() >> 10);
  texts.each_line([&](std::string_view line, std::size_t done) {
    tokens.clear();
    tokenizer->encode(text_of(line, with_end, buffer), tokens);
    rows.add(tokens);
    console.progress(static_cast<std::int64_t>(done >> 10), total, "KiB in tokens,");
  });
  rows.end_row();
  if (writer.rows() == writer.held_out()) {
    throw DataError(
        fmt::format("{}: has no words to train on", dtrain::printable(options.texts.front())));
  }
  writer.finish();
  const double seconds = now() - started;
  console.choices(
      {{"tokens    ", fmt::format("{} in {:.1f} s", with_commas(double(rows.tokens())), seconds)},
       {"rows      ",
        fmt::format("{} of {}, {}; {} of them held out", with_commas(double(writer.rows())), length,
                    options.lines ? "one line each" : "packed",
                    with_commas(double(writer.held_out())))},
       {"written   ", fmt::format("{}: {} file{}, {}", options.output, writer.files(),
                                  writer.files() == 1 ? "" : "s", megabytes(writer.bytes()))}});
}

} // namespace trainer
