#include "trainer/strategy/passes.h"

#include <utility>
#include <vector>

namespace trainer {

Passes::Passes(Model& model, Device& device, std::size_t rows_at_once, std::size_t granularity,
               bool is_replayed, Final final, Release release)
    : model_(model), device_(device), rows_at_once_(rows_at_once), granularity_(granularity),
      is_replayed_(is_replayed), final_(std::move(final)), release_(std::move(release)) {}

void Passes::final(std::size_t count) {
  if (is_last_) {
    is_final_ = count;
    final_(count);
  }
}

void Passes::done(std::size_t unit) {
  owner_->done(unit);
  const std::size_t last = model_.units()[unit].last;
  if (is_last_ && last <= is_final_) { // Else it was forward.
    release_(last);
  }
}

void Passes::run(const Batch& batch, const float* factor, ParameterOwner& owner, Score* score,
                 const std::function<void()>& behind) {
  owner_ = &owner;
  is_final_ = 0;
  for (std::size_t row = 0; row < batch.rows;) {
    const Batch part = batch.slice(row, rows_at_once_);
    const bool accumulate = row > 0;
    row += part.rows;
    owner.begin_pass();
    const bool is_last = row == batch.rows;
    is_last_ = is_last && !is_replayed_;
    model_.draw(part);
    const auto pass = [&] {
      model_.compute(part, factor, accumulate, *this, score);
      if (is_last) {
        behind();
      }
    };
    if (!is_replayed_) {
      pass();
      continue;
    }
    const auto address = [](const void* at) { return reinterpret_cast<std::uint64_t>(at); };
    std::vector<std::uint64_t> key = {part.rows, accumulate ? 1U : 0U, is_last ? 1U : 0U,
                                      address(score)};
    for (const Batch::Field& one : part.fields) {
      key.insert(key.end(), {address(one.memory), one.width});
    }
    device_.stream().replay(key, pass);
  }
}

} // namespace trainer
