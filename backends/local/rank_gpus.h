// The GPUs that a job's ranks hold on this machine. Before ranks start on theirs, those that are
// faulty are replaced by free ones.
#pragma once

#include "backends/local/gpu_claims.h"
#include "backends/supervised/gang/gang_plan.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrain {

class RankGpus {
 public:
  /// `user`: for whom GPUs are claimed (gpu_claims.h).
  explicit RankGpus(GpuUser user) : user_(std::move(user)) {}

  /// False where other jobs have taken some that were free when the plan was made.
  bool claim(const GangPlan& plan);

  /// Claims what the plan's ranks lack, and releases what none of them has.
  void hold_only(const GangPlan& plan);

  /// Devices that another job has taken by now also count as this rank's.
  void hold(const GangRank& rank);
  bool are_held(const std::string& instance) const { return claims_.contains(instance); }
  void release(const std::string& instance) { claims_.erase(instance); }

  /// The rank's own, some of which may differ from those in the plan.
  std::optional<std::vector<std::string>> of(const GangRank& rank) const;

  /// Has the ranks have those of the plan again: what was faulty may not be so any more.
  void forget_faults() { instead_.clear(); }

  /// Replaces faulty devices among those that the ranks hold. If there is no free one, does without
  /// the last workers, down to `fewest` (0: none is left out), or releases all and throws
  /// EngineError.
  void replace_faulty(std::vector<GangRank>& ranks, int fewest = 0);

  /// What was faulty since the last call, and what came of it, for people; empty: nothing.
  std::string take_news();

 private:
  using FaultOf = std::function<std::string(const std::string& device)>;
  struct FaultyGpu {
    const GangRank* rank;
    std::string planned; ///< Device that the rank's plan names in its place.
    std::string device;
    std::string fault;
  };
  struct News {
    std::vector<std::string> lines;
    std::set<std::string> faults; ///< Those that the lines name.
  };

  std::optional<FaultyGpu> first_faulty(const std::vector<GangRank>& ranks,
                                        const FaultOf& fault_of) const;
  std::vector<std::string> replace(std::vector<GangRank>& ranks, int fewest,
                                   const FaultOf& fault_of, News& news);
  std::vector<std::string> replace_measured(std::vector<GangRank>& ranks, int fewest,
                                            const FaultOf& known, News& news);
  std::vector<std::string> all_of(const std::vector<GangRank>& ranks) const;
  void swap(const std::string& planned, const std::string& other);

  GpuUser user_;
  GpuCheck check_ = GpuCheck::none;
  std::map<std::string, GpuClaim> claims_;     ///< By instance, for those with devices.
  std::map<std::string, std::string> instead_; ///< Devices that took the place of faulty ones.
  std::vector<std::string> news_;              ///< Not yet told.
};

} // namespace dtrain
