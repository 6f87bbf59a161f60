// An owner of whole arenas that notes what a model tells it.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace trainer::test {

class NotingOwner final : public Replicated {
 public:
  using Replicated::Replicated;

  UnitMemory need(std::size_t unit) override {
    told.emplace_back("need", unit);
    return Replicated::need(unit);
  }
  void write(std::size_t unit) override { told.emplace_back("write", unit); }
  void done(std::size_t unit) override { told.emplace_back("done", unit); }
  void final(std::size_t count) override { told.emplace_back("final", count); }
  std::size_t granularity() const override { return wanted_granularity; }

  std::vector<std::size_t> all(const std::string& what) const {
    std::vector<std::size_t> numbers;
    for (const auto& [each, number] : told) {
      if (each == what) {
        numbers.push_back(number);
      }
    }
    return numbers;
  }

  std::vector<std::pair<std::string, std::size_t>> told;
  std::size_t wanted_granularity = SIZE_MAX;
};

} // namespace trainer::test
