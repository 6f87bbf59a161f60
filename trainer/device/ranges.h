// A set of ranges [first, last), apart from each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace trainer {

class Ranges {
 public:
  void add(std::size_t first, std::size_t last) {
    auto it = lasts_.upper_bound(first);
    if (it != lasts_.begin() && std::prev(it)->second >= first) {
      first = (--it)->first;
    }
    while (it != lasts_.end() && it->first <= last) {
      last = std::max(last, it->second);
      it = lasts_.erase(it);
    }
    lasts_[first] = last;
  }

  void remove(std::size_t first, std::size_t last) {
    auto it = lasts_.upper_bound(first);
    if (it != lasts_.begin()) {
      --it;
    }
    while (it != lasts_.end() && it->first < last) {
      const auto [begin, end] = *it;
      if (end <= first) {
        ++it;
        continue;
      }
      it = lasts_.erase(it);
      if (begin < first) {
        lasts_[begin] = first;
      }
      if (end > last) {
        lasts_[last] = end;
      }
    }
  }

  /// Whether some of [first, last) is in the set.
  bool touches(std::size_t first, std::size_t last) const {
    const auto behind = lasts_.lower_bound(last);
    return behind != lasts_.begin() && std::prev(behind)->second > first;
  }

 private:
  std::map<std::size_t, std::size_t> lasts_; ///< By their first values.
};

} // namespace trainer
