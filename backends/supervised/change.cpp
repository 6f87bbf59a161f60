// Changing a job that is there: suspend, resume, scale, delete.
//
// What a job is to be stands in its folder (plan.yaml, job.yaml); a signal has its supervisor look.
#include "backends/supervised/gang/devices.h"
#include "backends/supervised/gang/gang.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/programs.h"
#include "backends/supervised/stop.h"
#include "backends/supervised/store/saved_environment.h"
#include "backends/supervised/store/saved_templates.h"
#include "backends/supervised/supervise.h"
#include "backends/supervised/supervised_backend.h"
#include "backends/support/os/cgroup.h"
#include "backends/support/os/process.h"
#include "backends/support/os/split_at_nul.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <signal.h>

namespace dtrain {

namespace {

void require_alive(const JobSummary& job) {
  if (is_final(job.phase)) {
    throw UsageError(fmt::format("job {} has already ended ({})", job.name, phase_name(job.phase)));
  }
}

} // namespace

/// The record of a job that has not ended, and whose processes are on this machine.
JobRecord SupervisedBackend::record_here(const JobFolder& folder, const JobRef& job) const {
  auto record = record_of(folder, job);
  require_alive(record.status);
  if (!is_within_reach(record.owner) && needs_supervisor(record.status.phase)) {
    throw EngineError(fmt::format("job {} runs {}: run this command there", text_of(job),
                                  place_text(record.owner)));
  }
  return record;
}

/// The plan of a job that was submitted, for other devices or another number of workers.
Plan SupervisedBackend::render_again(const JobFolder& folder, const JobSpec& job,
                                     bool keep_devices) const {
  const auto before = read_gang_plan(folder.read(k_plan_file).value_or(""));
  GangSite site = site_of(before, job);
  site.secret_env = split_at_nul(folder.read(k_secrets_file).value_or(""));
  return render(job, saved_templates(folder, job), site,
                keep_devices ? devices_of(before) : std::vector<std::string>());
}

bool SupervisedBackend::suspend(const JobRef& job) {
  const auto folder = open(job);
  const auto record = record_here(folder, job);
  if (record.status.phase == Phase::suspended) {
    return false;
  }
  signal_job(record.owner, SIGTSTP);
  const auto after = record_of(folder, job).status;
  require_alive(after);
  if (after.phase != Phase::suspended) {
    throw EngineError(fmt::format("job {} did not end: see {}/{}", text_of(job),
                                  printable(folder.path()), k_supervisor_log));
  }
  return true;
}

bool SupervisedBackend::resume(const JobRef& job) {
  std::string answer = k_devices_taken;
  while (answer == k_devices_taken) { // Then a plan with other, free devices.
    const auto folder = open(job);
    {
      const FolderLock lock(folder);
      if (record_here(folder, job).status.phase != Phase::suspended) {
        return false;
      }
      const auto plan = render_again(folder, spec(job), false);
      const auto saved = folder.read(k_environment_file);
      const auto path = saved ? saved_variable(*saved, "PATH") : std::nullopt;
      const auto& text = plan.documents.front().text;
      require_startable(read_gang_plan(text), path.value_or(inherited_path()));
      folder.write(k_plan_file, text);
    }
    const auto starting = start_supervisor(job, folder.path());
    starting.confirm();
    answer = starting.answer;
  }
  if (!answer.starts_with(k_taken) && answer != k_name_in_use) { // Somebody else has resumed it.
    throw EngineError(fmt::format("the job was not resumed: {}",
                                  answer.empty() ? "its supervisor ended at once" : answer));
  }
  return true;
}

void SupervisedBackend::scale(const JobRef& job, int workers) {
  const auto folder = open(job);
  const FolderLock lock(folder);
  auto record = record_here(folder, job);
  auto wanted = spec(job);
  if (wanted.min_workers == 0 && wanted.max_workers == 0) {
    throw UsageError(fmt::format("job {} is not elastic: submit it with --min-workers and "
                                 "--max-workers",
                                 job.name));
  }
  wanted.workers = workers;
  wanted = dtrain::resolve(wanted);
  const auto plan = render_again(folder, wanted, needs_supervisor(record.status.phase));
  folder.write(k_plan_file, plan.documents.front().text);
  folder.write(k_spec_file, write_job_yaml(wanted));
  if (needs_supervisor(record.status.phase)) {
    signal_process(record.owner.guard, SIGHUP);
    return;
  }
  record.status.instances.clear(); // Their status before resume starts them.
  const auto next = read_gang_plan(plan.documents.front().text);
  for (const GangRank& rank : next.ranks) {
    record.status.instances.push_back(pending_instance(rank, record.status.instances.empty(), ""));
  }
  count_gpus(next, record.status);
  record.status.gpus_allocated = 0;
  folder.set_record(record);
}

void SupervisedBackend::remove(const JobRef& job) {
  const auto folder = open(job);
  {
    const FolderLock lock(folder); // So that nobody resumes it meanwhile.
    // The record as written, not as seen: one that is final was written when no process was left.
    if (const auto record = folder.record(); record && needs_supervisor(record->status.phase)) {
      if (!is_within_reach(record->owner)) {
        throw EngineError(fmt::format(
            "job {} runs {}: delete it there; if that machine is gone for good, remove {}",
            text_of(job), place_text(record->owner), printable(folder.path())));
      }
      if (whereabouts(record->owner.machine) == Whereabouts::here) {
        stop_job(folder, *record);
      }
    }
    const auto group = folder.record().value_or(JobRecord()).owner;
    if (!group.cgroup.empty() && whereabouts(group.machine) == Whereabouts::here) {
      Cgroup(group.cgroup).remove(); // The guard does so, unless it was killed.
    }
    const auto plan = folder.read(k_plan_file);
    const auto uid = folder.record().value_or(JobRecord()).status.uid;
    if (store_.remove(folder, job)) {
      if (plan && !uid.empty()) {
        remove_far(read_gang_plan(*plan), uid);
      }
      return;
    }
  }
  throw NotFound(fmt::format("job {} has just been deleted by another command", text_of(job)));
}

} // namespace dtrain
