// A job's objects, kept current by watches.
#pragma once

#include "backends/kubernetes/api/collection.h"
#include "backends/kubernetes/status/status.h"

#include <chrono>
#include <optional>

namespace dtrain::kubernetes {

class WatchedJob {
 public:
  /// Throws NotFound where there is no such job. `ref` outlives this.
  WatchedJob(ApiClient& api, const JobRef& ref);

  /// The Job or JobSet that owns the rest; nullptr where it is deleted.
  const nlohmann::json* job() const;

  /// From then on with what says why the job waits, where that is of use.
  JobObjects objects();

  /// Waits for something to happen, at most `wait`.
  void run(std::chrono::milliseconds wait);

  /// Changes since the last call.
  bool take_changed();

 private:
  /// Watched from when it is first of use. Who may not is told less.
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

  void start_sets();
  void await_set();
  JobObjects watched() const;

  ApiClient& api_;
  const JobRef& ref_;
  Collection jobs_;
  Collection pods_;
  Collection sets_; // Watched where the job is one.
  Extra events_;
  Extra workloads_;
  std::string uid_;
  bool has_sets_ = false;
};

} // namespace dtrain::kubernetes
