#include "trainer/strategy/passes.h"

#include <utility>

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
    const auto pass = [&] {
      model_.forward_backward(part, factor, accumulate, *this, score);
      if (is_last) {
        behind();
      }
    };
    // Of text other values are dropped each time.
    if (!is_replayed_ || !part[field::ids].empty()) {
      pass();
      continue;
    }
    const auto address = [](const auto* at) { return reinterpret_cast<std::uint64_t>(at); };
    device_.stream().replay({address(part[field::images].data()),
                             address(part[field::labels].data()), part.rows, accumulate ? 1U : 0U,
                             is_last ? 1U : 0U, address(score)},
                            pass);
  }
}

} // namespace trainer
