// A map from short strings to numbers 0, 1, 2, … in order of arrival, used to count words and to
// cache their tokens. It grows, and never removes entries.
//
// Open addressing over a power of two of slots, at most half of them taken; a slot keeps the hash,
// so that text is compared once, where it is the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/xxh64.h"

namespace trainer {

class ByteMap {
 public:
  struct Found {
    std::uint32_t number;
    bool is_new;
  };

  std::size_t size() const { return ends_.size(); }
  std::size_t bytes() const { return text_.size(); }

  /// Adds it where it is not there yet. At most 2^32 - 2 of them, 4 GiB together.
  Found insert(std::string_view key) {
    if (ends_.size() * 2 >= slots_.size()) {
      grow();
    }
    const std::uint64_t hash = hash_of(key);
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.number == k_none) {
        slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(ends_.size())};
        text_ += key;
        ends_.push_back(text_.size());
        return {slot.number, true};
      }
      if (slot.hash == static_cast<std::uint32_t>(hash >> 32) && this->key(slot.number) == key) {
        return {slot.number, false};
      }
    }
  }

  std::string_view key(std::uint32_t number) const {
    const std::size_t first = number == 0 ? 0 : ends_[number - 1];
    return std::string_view(text_).substr(first, ends_[number] - first);
  }

 private:
  static constexpr std::uint32_t k_none = UINT32_MAX;
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t number = k_none;
  };

  static std::uint64_t hash_of(std::string_view key) {
    return xxh64({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()}, 0);
  }

  void grow() {
    constexpr std::size_t k_first_slots = 1 << 12;
    slots_.assign(std::max(k_first_slots, slots_.size() * 2), {});
    for (std::uint32_t number = 0; number < ends_.size(); ++number) {
      const std::uint64_t hash = hash_of(key(number));
      std::size_t at = hash & (slots_.size() - 1);
      while (slots_[at].number != k_none) {
        at = (at + 1) & (slots_.size() - 1);
      }
      slots_[at] = {static_cast<std::uint32_t>(hash >> 32), number};
    }
  }

  std::vector<Slot> slots_;
  std::string text_;
  std::vector<std::size_t> ends_;
};

} // namespace trainer
