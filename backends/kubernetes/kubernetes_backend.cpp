#include "backends/kubernetes/kubernetes_backend.h"

#include "backends/kubernetes/api_client.h"
#include "backends/kubernetes/check.h"
#include "backends/kubernetes/follow.h"
#include "backends/kubernetes/objects.h"
#include "backends/kubernetes/render.h"
#include "backends/kubernetes/status.h"
#include "backends/kubernetes/submission.h"

#include <map>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

class KubernetesBackend final : public Backend {
 public:
  explicit KubernetesBackend(EngineAccess access) : access_(std::move(access)) {}

  std::string_view name() const override { return "kubernetes"; }
  Plan render(const JobSpec& job) const override { return render_plan(job); }
  void submit(const Plan& plan) override { create_objects(api(), plan); }
  std::vector<CheckResult> check() override { return check_cluster(api()); }

  std::vector<JobSummary> list(const ListQuery& query) override {
    std::vector<JobSummary> summaries;
    std::map<std::string, std::string> nodes = chief_nodes(api(), query.namespace_name);
    for (const json& job :
         api().list(jobs_path(query.namespace_name), {{"labelSelector", selector_of("")}}).items) {
      summaries.push_back(summarize(job));
      auto node = nodes.find(text_at(job, "metadata/uid"));
      summaries.back().node = node == nodes.end() ? "" : node->second;
    }
    return summaries;
  }

  JobStatus status(const JobRef& ref) override {
    JobObjects objects = read_objects(api(), in_namespace(ref));
    JobStatus status = status_of(objects);
    add_last_lines(api(), objects, status);
    return status;
  }

  void watch(const JobRef& ref, const StatusSink& sink) override {
    watch_job(api(), in_namespace(ref), sink);
  }

  void logs(const JobRef& ref, const LogQuery& query, const LogSink& sink) override {
    read_logs(api(), in_namespace(ref), query, sink);
  }

  void remove(const JobRef& ref) override { remove_objects(api(), in_namespace(ref)); }

 private:
  ApiClient& api() {
    if (!api_) {
      api_ = std::make_unique<ApiClient>(find_cluster({access_.kubeconfig, access_.context}));
    }
    return *api_;
  }

  JobRef in_namespace(JobRef ref) {
    if (ref.namespace_name.empty()) {
      ref.namespace_name = api().access().namespace_name;
    }
    return ref;
  }

  EngineAccess access_;
  std::unique_ptr<ApiClient> api_;
};

} // namespace

std::unique_ptr<Backend> make_kubernetes_backend(const EngineAccess& access) {
  return std::make_unique<KubernetesBackend>(access);
}

} // namespace dtrain::kubernetes
