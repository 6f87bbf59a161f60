#include "trainer/strategy/parameter_server/work_ledger.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::size_t k_versions_kept = 100'000; ///< More than lie between two snapshots.

}

void WorkLedger::begin_version(std::int64_t version, bool went_back) {
  const std::int64_t newest = first_of_.empty() ? -1 : first_of_.rbegin()->first;
  if (version > newest) {
    if (first_of_.empty()) {
      next_ = std::min(version * workers_, batches_); // This coordinator is new, the job is not.
    }
    first_of_[version] = next_;
    if (first_of_.size() > k_versions_kept) {
      first_of_.erase(first_of_.begin());
    }
  } else if (went_back && version < newest) {
    const auto found = first_of_.find(version);
    next_ = found != first_of_.end() ? found->second : std::min(version * workers_, next_);
    first_of_.erase(first_of_.upper_bound(version), first_of_.end());
    returned_.clear();
    under_way_.clear();
  }
}

std::optional<std::int64_t> WorkLedger::next(int worker, std::int64_t version, bool went_back) {
  under_way_.erase(worker);
  if (sync_) {
    begin_version(version, went_back);
  }
  std::int64_t batch = next_;
  if (!returned_.empty()) {
    batch = returned_.front();
    returned_.pop_front();
  } else if (next_ < batches_) {
    ++next_;
  } else {
    return std::nullopt;
  }
  under_way_[worker] = batch;
  return batch;
}

void WorkLedger::lose(int worker) {
  const auto found = under_way_.find(worker);
  if (found != under_way_.end()) {
    returned_.push_back(found->second);
    under_way_.erase(found);
  }
}

} // namespace trainer
