#include "backends/kubernetes/kubernetes_backend.h"

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/cluster/check.h"
#include "backends/kubernetes/cluster/inventory.h"
#include "backends/kubernetes/connect/exec.h"
#include "backends/kubernetes/connect/tensorboard.h"
#include "backends/kubernetes/logs/read_logs.h"
#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/render/pod_roles.h"
#include "backends/kubernetes/render/render.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/status.h"
#include "backends/kubernetes/status/usage.h"
#include "backends/kubernetes/status/watch_jobs.h"
#include "backends/kubernetes/submission/change_job.h"
#include "backends/kubernetes/submission/prerequisites.h"
#include "backends/kubernetes/submission/submission.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <map>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

class KubernetesBackend final : public Backend {
 public:
  explicit KubernetesBackend(const EngineAccess& access) : access_(access) {}

  std::string_view name() const override { return "kubernetes"; }

  std::string default_namespace() override {
    return api_ ? api_->access().namespace_name
                : context_namespace({access_.get("kubeconfig"), access_.get("context")});
  }

  Plan plan(JobSpec job, const Templates& templates) override {
    settle_scheduler(job);
    settle_image(job);
    const std::vector<std::string> choices = gang_scheduler(job);
    Plan plan = render_plan(job, templates, read_secrets(job));
    plan.notices.insert(plan.notices.begin(), choices.begin(), choices.end());
    return plan;
  }
  void submit(const Plan& plan, const SubmitSink& tell) override {
    create_objects(api(), plan, tell);
  }
  std::vector<CheckResult> check() override { return check_cluster(api()); }

  std::vector<JobSummary> list(const ListQuery& query) override {
    const std::string chiefs = fmt::format("{},{}=0", selector_of(""), k_index_label);
    const auto listings =
        api().list_all({{jobs_path(query.namespace_name), {{"labelSelector", selector_of("")}}},
                        {pods_path(query.namespace_name), {{"labelSelector", chiefs}}}});
    std::map<std::string, std::string> nodes; // Keyed by the Job's uid.
    for (const json& pod : listings[1].items) {
      nodes[owner_uid(pod)] = text_at(pod, "spec/nodeName");
    }
    const json none;
    struct Others {
      const json* lead;
      JobList others;
    };
    std::map<std::string, Others> others; // Keyed by the uid of the Job that owns them.
    for (const json& job : listings[0].items) {
      if (const std::string role = label(job, k_role_label); !role.empty()) {
        Others& of_job = others.try_emplace(root_uid(job), Others{&none, {}}).first->second;
        if (is_lead_role(role)) {
          of_job.lead = &job;
        } else {
          of_job.others.push_back(&job);
        }
      }
    }
    std::vector<JobSummary> summaries;
    std::map<std::string, std::vector<ObjectPtr>> parts; // Keyed by the uid of their JobSet.
    for (const json& job : listings[0].items) {
      if (const std::string set = label(job, k_jobset_uid_label); !set.empty()) {
        parts[set].push_back(std::make_shared<json>(job));
        continue;
      }
      if (!label(job, k_role_label).empty()) {
        continue;
      }
      const std::string uid = text_at(job, "metadata/uid");
      const auto found = others.find(uid);
      const Others of_job = found == others.end() ? Others{&none, {}} : found->second;
      summaries.push_back(summarize(job, *of_job.lead, of_job.others));
      end_jobs(api(), left_over(job, *of_job.lead, of_job.others));
      const bool led = !of_job.lead->is_null();
      const auto node = nodes.find(led ? text_at(*of_job.lead, "metadata/uid") : uid);
      summaries.back().node = node == nodes.end() ? "" : node->second;
    }
    for (const json& set : list_sets(query.namespace_name)) {
      const std::vector<ObjectPtr>& own = parts[text_at(set, "metadata/uid")];
      const json lead = job_in_set(set, lead_role(set), own);
      const json job = job_in_set(set, k_worker_role, own);
      const std::vector<json> behind = others_in_set(set, own);
      summaries.push_back(summarize(job, lead, pointers(behind)));
      if (summaries.back().phase == Phase::suspended && is_in_queue(set)) {
        summaries.back().phase = Phase::queuing;
      }
      const auto node = nodes.find(text_at(lead.is_null() ? job : lead, "metadata/uid"));
      summaries.back().node = node == nodes.end() ? "" : node->second;
    }
    return summaries;
  }

  JobStatus status(const JobRef& ref) override {
    JobObjects objects = read_objects(api(), ref);
    read_leases(api(), objects);
    JobStatus status = status_of(objects);
    add_last_lines(api(), objects, status);
    end_left_over(api(), objects);
    return status;
  }

  void watch_all(const std::string& namespace_name, const std::vector<std::string>& names,
                 const NewsSink& sink) override {
    watch_jobs(api(), namespace_name, names, sink);
  }

  void logs(const JobRef& ref, const LogQuery& query, const LogSink& sink) override {
    read_logs(api(), ref, query, sink);
  }

  std::vector<JobEvent> events(const JobRef& ref) override { return read_events(api(), ref); }

  void remove(const JobRef& ref) override { remove_objects(api(), ref); }

  std::vector<Plan::Document> try_plan(const Plan& plan) override {
    return try_objects(api(), plan);
  }

  bool suspend(const JobRef& ref) override { return set_suspended(api(), ref, true); }
  bool resume(const JobRef& ref) override { return set_suspended(api(), ref, false); }
  void scale(const JobRef& ref, int workers) override { scale_job(api(), ref, workers); }
  JobSpec spec(const JobRef& ref) override { return submitted_spec(api(), ref); }
  int exec(const JobRef& ref, const std::string& instance,
           const std::vector<std::string>& command) override {
    return exec_beside(api(), ref, instance, command);
  }
  void read_files(const JobRef& ref, const std::string& instance, const std::string& path,
                  const ByteSink& sink) override {
    kubernetes::read_files(api(), ref, instance, path, sink);
  }
  std::optional<int>
  forward_tensorboard(const JobRef& ref, int port,
                      const std::function<void(const std::string&)>& opened) override {
    return forward_board(api(), ref, port, opened);
  }
  std::vector<NodeStatus> nodes() override { return list_nodes(api()); }
  std::vector<InstanceUsage> usage(const JobRef& ref) override {
    return instance_usage(api(), ref);
  }
  std::vector<Claim> claims(const std::string& namespace_name) override {
    return list_claims(api(), namespace_name);
  }

 private:
  /// Asks the cluster for the one of a job that leaves it open; a line for each choice.
  std::vector<std::string> gang_scheduler(JobSpec& job) {
    if (!chooses_scheduler(job)) {
      return {};
    }
    try {
      return choose_scheduler(api(), job);
    } catch (const EngineError& error) {
      throw EngineError(fmt::format("--gang: cannot find out which gang scheduler the cluster has; "
                                    "name it (--scheduler=volcano): {}",
                                    error.what()));
    }
  }

  /// JobSets, and those that TrainJobs will have. None where the cluster has no such API, or we may
  /// not look.
  std::vector<json> list_sets(const std::string& namespace_name) {
    const Query ours = {{"labelSelector", selector_of("")}};
    Query first = ours;
    first.emplace_back("limit", "1");
    const auto found =
        api().call_all({api().request("GET", jobsets_path(namespace_name), first),
                        api().request("GET", trainjobs_path(namespace_name), first)});
    const auto all_of = [&](const ApiResult& any, const std::string& path) {
      return any.ok() && !member(any.body, "items").empty() ? api().list(path, ours).items
                                                            : std::vector<json>();
    };
    const std::vector<json> trainjobs = all_of(found[1], trainjobs_path(namespace_name));
    // Also those created meanwhile.
    std::vector<json> sets = all_of(found[0], jobsets_path(namespace_name));
    const std::vector<json> waiting = without_set(trainjobs, sets);
    if (!waiting.empty()) {
      const ApiResult runtimes =
          api().call(api().request("GET", training_runtimes_path(namespace_name), ours));
      for (json& set : sets_to_be(waiting, member(runtimes.body, "items"))) {
        sets.push_back(std::move(set));
      }
    }
    return sets;
  }

  ApiClient& api() {
    if (!api_) {
      api_ = std::make_unique<ApiClient>(
          find_cluster({access_.get("kubeconfig"), access_.get("context")}));
    }
    return *api_;
  }

  EngineAccess access_;
  std::unique_ptr<ApiClient> api_;
};

} // namespace

std::unique_ptr<Backend> make_kubernetes_backend(const EngineAccess& access) {
  return std::make_unique<KubernetesBackend>(access);
}

} // namespace dtrain::kubernetes
