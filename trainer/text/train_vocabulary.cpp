#include "trainer/text/train_vocabulary.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <queue>
#include <unordered_map>

#include "trainer/text/byte_bpe.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

/// Words as tokens, and the pairs in them.
class Merging {
 public:
  explicit Merging(std::size_t words) { words_.reserve(words); }

  void add(const std::vector<TokenId>& tokens, std::uint64_t count) {
    const auto word = static_cast<std::uint32_t>(words_.size());
    words_.push_back({static_cast<std::uint32_t>(tokens_.size()),
                      static_cast<std::uint32_t>(tokens.size()), count});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      change(tokens[i - 1], tokens[i], word, static_cast<std::int64_t>(count));
    }
  }

  struct Best {
    TokenId left;
    TokenId right;
    std::uint64_t count;
    std::uint32_t pair;
  };

  /// Puts those pairs that were seen since into the heap.
  void settle() {
    for (const std::uint32_t pair : fresh_) {
      Pair& found = pairs_[pair];
      found.is_fresh = false;
      if (found.count > 0) {
        heap_.push({static_cast<std::uint64_t>(found.count), found.key, pair});
      }
    }
    fresh_.clear();
  }

  /// The most frequent pair; count 0: no pair.
  Best best() {
    while (!heap_.empty()) {
      Entry top = heap_.top();
      heap_.pop();
      const std::int64_t count = pairs_[top.pair].count;
      if (count <= 0) {
        continue;
      }
      if (static_cast<std::uint64_t>(count) != top.count) {
        top.count = static_cast<std::uint64_t>(count);
        heap_.push(top);
        continue;
      }
      return {static_cast<TokenId>(top.key >> 32), static_cast<TokenId>(top.key & UINT32_MAX),
              top.count, top.pair};
    }
    return {};
  }

  void merge(const Best& best, TokenId merged) {
    std::vector<std::uint32_t> in = std::move(pairs_[best.pair].words);
    pairs_[best.pair].words.clear();
    std::sort(in.begin(), in.end());
    in.erase(std::unique(in.begin(), in.end()), in.end());
    for (const std::uint32_t word : in) {
      merge_in(word, best.left, best.right, merged);
    }
    settle();
  }

 private:
  struct Word {
    std::uint32_t first; ///< Index in tokens_.
    std::uint32_t size;
    std::uint64_t count;
  };
  struct Pair {
    std::uint64_t key;
    std::int64_t count = 0;
    bool is_fresh = false;
    std::vector<std::uint32_t> words; ///< That it is in, or was; some twice.
  };
  struct Entry {
    std::uint64_t count;
    std::uint64_t key;
    std::uint32_t pair;
    bool operator<(const Entry& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void change(TokenId left, TokenId right, std::uint32_t word, std::int64_t by) {
    const std::uint64_t key =
        static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
    const auto [found, is_new] =
        numbers_.try_emplace(key, static_cast<std::uint32_t>(pairs_.size()));
    if (is_new) {
      pairs_.push_back({.key = key, .words = {}});
    }
    Pair& pair = pairs_[found->second];
    pair.count += by;
    if (by > 0) {
      if (!pair.is_fresh) {
        pair.is_fresh = true;
        fresh_.push_back(found->second);
      }
      if (pair.words.empty() || pair.words.back() != word) {
        pair.words.push_back(word);
      }
    }
  }

  void merge_in(std::uint32_t number, TokenId left, TokenId right, TokenId merged) {
    Word& word = words_[number];
    TokenId* const tokens = tokens_.data() + word.first;
    const auto count = static_cast<std::int64_t>(word.count);
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < word.size; ++i, ++kept) {
      if (tokens[i] != left || i + 1 == word.size || tokens[i + 1] != right) {
        tokens[kept] = tokens[i];
        continue;
      }
      change(left, right, number, -count);
      if (kept > 0) {
        change(tokens[kept - 1], left, number, -count);
        change(tokens[kept - 1], merged, number, count);
      }
      ++i;
      if (i + 1 < word.size) {
        change(right, tokens[i + 1], number, -count);
        change(merged, tokens[i + 1], number, count);
      }
      tokens[kept] = merged;
    }
    word.size = kept;
  }

  std::vector<Word> words_;
  std::vector<TokenId> tokens_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_; ///< Indices in pairs_.
  std::vector<std::uint32_t> fresh_;
  std::priority_queue<Entry> heap_;
};

/// Tokens, numbered in the order in which they come.
class Numbering {
 public:
  /// A new one's, too.
  TokenId id_of(std::string token) {
    const auto [found, is_new] = ids_.try_emplace(token, static_cast<TokenId>(tokens_.size()));
    if (is_new) {
      tokens_.push_back(std::move(token));
    }
    return found->second;
  }
  const std::string& token(TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return tokens_.size(); }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
};

/// Merges pairs until the vocabulary is full or none is frequent enough. join(left, right) is the
/// token that a pair becomes.
template <typename Join>
void merge_pairs(Merging& merging, const VocabularyTraining& training, Numbering& tokens,
                 const VocabularyProgress& progress, const Join& join) {
  merging.settle();
  while (tokens.size() < training.size) {
    const Merging::Best best = merging.best();
    if (best.count < std::max<std::uint64_t>(training.least, 1)) {
      break;
    }
    merging.merge(best, tokens.id_of(join(tokens.token(best.left), tokens.token(best.right))));
    if (progress) {
      progress(tokens.size());
    }
  }
}

/// The `most` characters that are most frequent, in order.
std::vector<char32_t> alphabet_of(const std::map<char32_t, std::uint64_t>& counts,
                                  std::size_t most) {
  std::vector<std::pair<std::uint64_t, char32_t>> all;
  all.reserve(counts.size());
  for (const auto& [c, count] : counts) {
    all.emplace_back(count, c);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  all.resize(std::min(all.size(), most));
  std::vector<char32_t> kept;
  kept.reserve(all.size());
  for (const auto& [count, c] : all) {
    kept.push_back(c);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

} // namespace

void WordPieceTrainer::read(std::string_view text) {
  BertWords::split_at_spaces(text, [this](std::string_view piece) { pieces_.add(piece); });
}

std::vector<std::string> WordPieceTrainer::train(const VocabularyTraining& training,
                                                 const VocabularyProgress& progress) {
  WordCounts words;
  for (std::uint32_t piece = 0; piece < pieces_.size(); ++piece) {
    words_.split(pieces_.word(piece),
                 [&](std::string_view word) { words.add(word, pieces_.count(piece)); });
  }
  std::map<char32_t, std::uint64_t> character_counts;
  std::map<char32_t, TokenId> inside; // ##x
  std::u32string characters;
  for (std::uint32_t word = 0; word < words.size(); ++word) {
    characters.clear();
    unicode::decode(words.word(word), characters);
    for (std::size_t i = 0; i < characters.size(); ++i) {
      character_counts[characters[i]] += words.count(word);
      if (i > 0) {
        inside[characters[i]] = -1;
      }
    }
  }

  Numbering tokens;
  for (const std::string& name : word_piece_special_names()) {
    tokens.id_of(name);
  }
  std::map<char32_t, TokenId> begins;
  for (const char32_t c : alphabet_of(character_counts, training.alphabet)) {
    std::string token;
    unicode::append_utf8(c, token);
    begins[c] = tokens.id_of(std::move(token));
  }
  std::erase_if(inside, [&](const auto& entry) { return !begins.contains(entry.first); });
  for (auto& [c, id] : inside) {
    id = tokens.id_of("##" + tokens.token(begins[c]));
  }

  Merging merging(words.size());
  std::vector<TokenId> word_tokens;
  for (std::uint32_t word = 0; word < words.size(); ++word) {
    characters.clear();
    unicode::decode(words.word(word), characters);
    word_tokens.clear();
    for (std::size_t i = 0; i < characters.size(); ++i) {
      if (const auto found = begins.find(characters[i]); found != begins.end()) {
        word_tokens.push_back(i == 0 ? found->second : inside[characters[i]]);
      }
    }
    merging.add(word_tokens, words.count(word));
  }
  merge_pairs(merging, training, tokens, progress,
              [](const std::string& left, const std::string& right) {
                return left + (right.starts_with("##") ? right.substr(2) : right);
              });
  return tokens.take();
}

void ByteBpeTrainer::read(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = byte_bpe_piece(text);
    pieces_.add(text.substr(0, size));
    text.remove_prefix(size);
  }
}

ByteBpeVocabulary ByteBpeTrainer::train(const VocabularyTraining& training,
                                        const VocabularyProgress& progress) const {
  Numbering tokens;
  for (const std::string& name : special_) {
    tokens.id_of(name);
  }
  std::array<std::size_t, k_bytes> in_order{}; // Of their letters, as `tokenizers` numbers them.
  std::iota(in_order.begin(), in_order.end(), 0);
  std::sort(in_order.begin(), in_order.end(),
            [](std::size_t a, std::size_t b) { return byte_letters()[a] < byte_letters()[b]; });
  std::array<TokenId, k_bytes> bytes{};
  for (const std::size_t byte : in_order) {
    std::string letter;
    unicode::append_utf8(byte_letters()[byte], letter);
    bytes[byte] = tokens.id_of(std::move(letter));
  }

  Merging merging(pieces_.size());
  std::vector<TokenId> piece_tokens;
  for (std::uint32_t piece = 0; piece < pieces_.size(); ++piece) {
    piece_tokens.clear();
    for (const char byte : pieces_.word(piece)) {
      piece_tokens.push_back(bytes[static_cast<unsigned char>(byte)]);
    }
    merging.add(piece_tokens, pieces_.count(piece));
  }
  Merges merges;
  merge_pairs(merging, training, tokens, progress,
              [&](const std::string& left, const std::string& right) {
                merges.emplace_back(left, right);
                return left + right;
              });
  return {tokens.take(), std::move(merges)};
}

} // namespace trainer
