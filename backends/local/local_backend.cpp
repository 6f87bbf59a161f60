#include "backends/local/local_backend.h"

#include "backends/local/exec.h"
#include "backends/local/fork_channel.h"
#include "backends/local/gpu_claims.h"
#include "backends/local/gpus.h"
#include "backends/local/local_plan.h"
#include "backends/local/startable.h"
#include "backends/local/usage.h"
#include "backends/supervised/supervise.h"
#include "backends/support/bucket/bucket_cache.h"
#include "backends/support/files/packed_files.h"
#include "backends/support/os/files.h"
#include "backends/support/progress.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dtrain {

namespace {

/// The job's own GPUs, free GPUs, and those of other jobs.
MachineGpus gpus_here(const std::vector<std::string>& own) {
  const auto all = find_gpus();
  MachineGpus found;
  found.devices = own;
  const auto add = [&](const std::vector<std::string>& more) {
    const auto known = found.devices;
    std::copy_if(more.begin(), more.end(), std::back_inserter(found.devices),
                 [&](const std::string& device) {
                   return std::find(known.begin(), known.end(), device) == known.end();
                 });
  };
  add(unclaimed_gpus(all));
  const std::size_t free = found.devices.size();
  add(all);
  found.in_use = found.devices.size() - free;
  found.users = other_users_of(all);
  return found;
}

} // namespace

int supervise_here(const std::vector<std::string>& args) {
  return supervise_main(args, [](const SupervisedJob& job) -> std::unique_ptr<Channel> {
    return std::make_unique<ForkChannel>(job.file_limit, GpuUser{job.uid, job.cgroup});
  });
}

void LocalBackend::resolve_paths(JobSpec& job) const {
  if (job.working_dir.empty() && job.sync_mode.empty()) {
    job.working_dir = ".";
  }
  SupervisedBackend::resolve_paths(job);
  for (std::string& text : job.data_dirs) {
    const MountText mount = parse_mount("--data-dir", text);
    text = mount.source.starts_with('/') ? text
                                         : fmt::format("{}:{}{}", absolute_path(mount.source),
                                                       mount.target, mount.read_only ? ":ro" : "");
  }
}

GangSite LocalBackend::site(const JobSpec& job) const {
  GangSite site = SupervisedBackend::site(job);
  site.data_folders = folders_here(job);
  return site;
}

Plan LocalBackend::render(const JobSpec& job, const Templates& templates, const GangSite& site,
                          const std::vector<std::string>& own_gpus) const {
  const bool wants_gpus = job.gpus > 0 || job.ps_gpus > 0;
  return render_local_plan(job, site, wants_gpus ? gpus_here(own_gpus) : MachineGpus(),
                           code_dir({job.namespace_name, job.name}), templates);
}

void LocalBackend::require_startable(const GangPlan& plan, const std::string& path) const {
  dtrain::require_startable(plan, path);
}

std::vector<Fd> LocalBackend::bring_buckets(const JobSpec& job, const SubmitSink& tell) const {
  std::vector<Fd> uses;
  for (const Bucket& bucket : buckets_of(job)) {
    report(tell, {.step = SubmitStep::copy});
    auto brought = bring_bucket(bucket, bucket_keys(bucket), as_step(SubmitStep::copy, tell));
    uses.push_back(std::move(brought.use));
    report(tell, {.step = SubmitStep::copy,
                  .done = true,
                  .text = fmt::format("{}: {}", bucket.shown(), copied_text(brought.progress))});
  }
  return uses;
}

int LocalBackend::exec(const JobRef& job, const std::string& instance,
                       const std::vector<std::string>& command) {
  return exec_beside(static_cast<pid_t>(running_instance(job, instance).pid), command);
}

void LocalBackend::read_files(const JobRef& job, const std::string& instance,
                              const std::string& path, const ByteSink& sink) {
  const auto gang = gang_plan(job);
  auto here = path.starts_with('/') ? path : fmt::format("{}/{}", gang.working_dir, path);
  const Mount* at = nullptr;
  for (const auto& mount : gang.mounts) {
    if ((here == mount.target || here.starts_with(mount.target + "/")) &&
        (at == nullptr || at->target.size() < mount.target.size())) {
      at = &mount;
    }
  }
  if (at != nullptr) {
    here.replace(0, at->target.size(), at->source);
  }
  const auto where = fmt::format("{}/{}", job.name, instance);
  const auto result =
      read_packed({.argv = {"sh", "-c", pack_script(), "dtrain", "/", here}}, where, sink);
  if (!result.ending.good()) {
    throw EngineError(fmt::format("{}: tar was killed", where));
  }
}

std::vector<NodeStatus> LocalBackend::nodes() {
  const auto gpus = find_gpus();
  const auto free = unclaimed_gpus(gpus);
  return {node_usage(host_name(), static_cast<int>(gpus.size()),
                     static_cast<int>(gpus.size() - free.size()))};
}

std::vector<InstanceUsage> LocalBackend::usage(const JobRef& job) {
  return instance_usage(status(job).instances);
}

} // namespace dtrain
