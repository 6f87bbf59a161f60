// Values by name, to which options point.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dtrain {

/// Values of the types that a job's fields have. Assignment keeps values in place: those that the
/// other object lacks are reset to their defaults.
class NamedValues {
 public:
  NamedValues() = default;
  NamedValues(const NamedValues&) = default;
  NamedValues& operator=(const NamedValues& other) {
    if (this == &other) {
      return *this;
    }
    for (auto& entry : values_) {
      entry.second.now = other.or_made(entry);
    }
    values_.insert(other.values_.begin(), other.values_.end());
    return *this;
  }
  ~NamedValues() = default;

  /// Adds the value with default `usual` if there is none with that name.
  template <class Value>
  Value& at(std::string_view name, const Value& usual = {}) {
    return std::get<Value>(
        values_.try_emplace(std::string(name), Known{usual, usual}).first->second.now);
  }

  /// Null if there is none with that name.
  template <class Value>
  const Value* find(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &std::get<Value>(found->second.now);
  }

  /// Values that only one side has must be at their defaults.
  bool operator==(const NamedValues& other) const {
    const auto agree = [](const NamedValues& some, const NamedValues& others) {
      return std::all_of(some.values_.begin(), some.values_.end(), [&](const auto& entry) {
        return entry.second.now == others.or_made(entry);
      });
    };
    return agree(*this, other) && agree(other, *this);
  }

 private:
  using Any = std::variant<std::string, int, bool, std::vector<std::string>>;
  struct Known {
    Any now;
    Any made;
  };
  using Map = std::map<std::string, Known, std::less<>>;

  const Any& or_made(const Map::value_type& entry) const {
    const auto found = values_.find(entry.first);
    return found == values_.end() ? entry.second.made : found->second.now;
  }

  Map values_;
};

} // namespace dtrain
