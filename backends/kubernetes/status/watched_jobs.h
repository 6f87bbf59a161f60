// Jobs' objects, kept current by watches: as many for a hundred jobs as for one.
#pragma once

#include "backends/kubernetes/api/collection.h"
#include "backends/kubernetes/status/status.h"

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::kubernetes {

class WatchedJobs {
 public:
  /// In one namespace; at least one.
  WatchedJobs(ApiClient& api, std::string namespace_name, std::vector<std::string> names);

  /// The Job or JobSet that owns the rest. Throws NotFound if there is none, or if it was deleted.
  const nlohmann::json& job(std::size_t which = 0) const;

  bool is_deleted(std::size_t which = 0) const { return find(jobs_of_names_[which]) == nullptr; }

  /// From then on with the objects that say why the job waits, if they help.
  JobObjects objects(std::size_t which = 0);

  /// Waits for something to happen, at most `wait`.
  void run(std::chrono::milliseconds wait);

  /// Changes since the last call.
  bool take_changed();

 private:
  /// Watched from when it is first of use. With fewer rights less is known.
  class Extra {
   public:
    void start(ApiClient& api, const std::string& path, const Query& query);
    void tend();
    bool take_changed() { return collection_ && collection_->take_changed(); }
    std::vector<ObjectPtr> objects() const;

   private:
    std::optional<Collection> collection_;
    bool open_ = false;
  };

  struct Job {
    std::string name;
    std::string uid = {}; ///< Empty: it was not there.
    Extra workloads = {};
  };

  void start_sets();
  void await_set(const Job& job);
  const nlohmann::json* find(const Job& job) const;

  ApiClient& api_;
  std::string namespace_;
  std::deque<Job> jobs_of_names_;
  Collection jobs_;
  Collection pods_;
  Collection sets_; // Watched where a job is one.
  Extra events_;
  bool has_sets_ = false;
};

} // namespace dtrain::kubernetes
