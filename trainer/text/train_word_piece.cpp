#include "trainer/text/train_word_piece.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

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
    for (std::uint32_t i = 0; i + 1 < word.size; ++i) {
      if (tokens[i] != left || tokens[i + 1] != right) {
        continue;
      }
      change(left, right, number, -count);
      if (i > 0) {
        change(tokens[i - 1], left, number, -count);
        change(tokens[i - 1], merged, number, count);
      }
      tokens[i] = merged;
      std::copy(tokens + i + 2, tokens + word.size, tokens + i + 1);
      --word.size;
      if (i + 1 < word.size) {
        change(right, tokens[i + 1], number, -count);
        change(merged, tokens[i + 1], number, count);
      }
    }
  }

  std::vector<Word> words_;
  std::vector<TokenId> tokens_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_; ///< Indices in pairs_.
  std::vector<std::uint32_t> fresh_;
  std::priority_queue<Entry> heap_;
};

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
  BertWords::split_at_spaces(text, [this](std::string_view piece) {
    const auto [number, is_new] = pieces_.insert(piece);
    if (is_new) {
      counts_.push_back(0);
    }
    ++counts_[number];
  });
}

std::vector<std::string> WordPieceTrainer::train(const WordPieceTraining& training,
                                                 const std::function<void(std::size_t)>& progress) {
  ByteMap words;
  std::vector<std::uint64_t> counts;
  for (std::uint32_t piece = 0; piece < pieces_.size(); ++piece) {
    words_.split(pieces_.key(piece), [&](std::string_view word) {
      const auto [number, is_new] = words.insert(word);
      if (is_new) {
        counts.push_back(0);
      }
      counts[number] += counts_[piece];
    });
  }
  std::map<char32_t, std::uint64_t> character_counts;
  std::map<char32_t, TokenId> inside; // ##x
  std::u32string characters;
  for (std::uint32_t word = 0; word < words.size(); ++word) {
    characters.clear();
    unicode::decode(words.key(word), characters);
    for (std::size_t i = 0; i < characters.size(); ++i) {
      character_counts[characters[i]] += counts[word];
      if (i > 0) {
        inside[characters[i]] = -1;
      }
    }
  }

  std::vector<std::string> tokens(word_piece_special_names().begin(),
                                  word_piece_special_names().end());
  std::unordered_map<std::string, TokenId> ids;
  for (const std::string& token : tokens) {
    ids.emplace(token, static_cast<TokenId>(ids.size()));
  }
  const auto id_of = [&](std::string token) { // A new one's, too.
    const auto [found, is_new] = ids.try_emplace(token, static_cast<TokenId>(tokens.size()));
    if (is_new) {
      tokens.push_back(std::move(token));
    }
    return found->second;
  };
  std::map<char32_t, TokenId> begins;
  for (const char32_t c : alphabet_of(character_counts, training.alphabet)) {
    std::string token;
    unicode::append_utf8(c, token);
    begins[c] = id_of(std::move(token));
  }
  std::erase_if(inside, [&](const auto& entry) { return !begins.contains(entry.first); });
  for (auto& [c, id] : inside) {
    id = id_of("##" + tokens[static_cast<std::size_t>(begins[c])]);
  }

  Merging merging(words.size());
  std::vector<TokenId> word_tokens;
  for (std::uint32_t word = 0; word < words.size(); ++word) {
    characters.clear();
    unicode::decode(words.key(word), characters);
    word_tokens.clear();
    for (std::size_t i = 0; i < characters.size(); ++i) {
      if (const auto found = begins.find(characters[i]); found != begins.end()) {
        word_tokens.push_back(i == 0 ? found->second : inside[characters[i]]);
      }
    }
    merging.add(word_tokens, counts[word]);
  }
  merging.settle();
  while (tokens.size() < training.size) {
    const Merging::Best best = merging.best();
    if (best.count < std::max<std::uint64_t>(training.least, 1)) {
      break;
    }
    const std::string& right = tokens[static_cast<std::size_t>(best.right)];
    const TokenId merged = id_of(tokens[static_cast<std::size_t>(best.left)] +
                                 (right.starts_with("##") ? right.substr(2) : right));
    merging.merge(best, merged);
    if (progress) {
      progress(tokens.size());
    }
  }
  return tokens;
}

} // namespace trainer
