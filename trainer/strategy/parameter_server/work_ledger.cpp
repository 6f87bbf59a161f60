#include "trainer/strategy/parameter_server/work_ledger.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::size_t k_given_kept = 1'000'000; ///< More batches than between two snapshots.

}

void WorkLedger::restart(std::int64_t version) {
  if (next_ == 0) { // The coordinator may have restarted within a running job.
    next_ = std::min(version * workers_, batches_);
  }
  under_way_.clear();
  std::erase_if(given_, [&](const Given& one) {
    if (one.version >= version) {
      returned_.insert(one.batch);
    }
    return one.version >= version;
  });
}

std::optional<std::int64_t> WorkLedger::next(int worker, std::int64_t version,
                                             std::int64_t generation, bool is_done) {
  if (sync_ && generation > generation_) {
    generation_ = generation;
    restart(version);
  }
  if (!is_done) {
    lose(worker);
  }
  under_way_.erase(worker);
  std::int64_t batch = next_;
  if (!returned_.empty()) {
    batch = returned_.extract(returned_.begin()).value();
  } else if (next_ < batches_) {
    ++next_;
  } else {
    return std::nullopt;
  }
  under_way_[worker] = batch;
  if (sync_) {
    given_.push_back({version, batch});
    if (given_.size() > k_given_kept) {
      given_.pop_front();
    }
  }
  return batch;
}

void WorkLedger::lose(int worker) {
  if (const auto found = under_way_.find(worker); found != under_way_.end()) {
    returned_.insert(found->second);
    under_way_.erase(found);
  }
}

} // namespace trainer
