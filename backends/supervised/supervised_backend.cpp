#include "backends/supervised/supervised_backend.h"

#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/programs.h"
#include "backends/supervised/store/job_logs.h"
#include "backends/supervised/store/job_watch.h"
#include "backends/supervised/store/saved_templates.h"
#include "backends/supervised/supervise.h"
#include "backends/support/code/code.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/files.h"
#include "backends/support/os/process.h"
#include "backends/support/progress.h"
#include "backends/support/user/config_folder.h"
#include "backends/support/user/env_file.h"
#include "submit/bucket.h"
#include "submit/errors.h"
#include "submit/options/environment.h"
#include "submit/options/this_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <thread>

namespace dtrain {

namespace {

constexpr const char* k_program = "dtrain";
constexpr const char* k_code_folder = "code"; ///< In a job's folder: the code of --sync-mode.

struct WatchedJob {
  std::size_t which;
  JobRef job;
  JobFolder folder;
  JobWatch watch{folder, false};
  std::string last = {}; ///< The record as last reported.

  WatchedJob(std::size_t number, JobRef ref, JobFolder opened)
      : which(number), job(std::move(ref)), folder(std::move(opened)) {}
};

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 4096> block{};
  ssize_t count = 0;
  while ((count = read(fd, block.data(), block.size())) > 0 || (count < 0 && errno == EINTR)) {
    text.append(block.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  return text;
}

/// During its lifetime signals that would end this process wait.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      sigaddset(&held_, signal);
    }
    sigprocmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  bool one_came() const {
    sigset_t pending;
    sigpending(&pending);
    sigandset(&pending, &pending, &held_);
    return sigisemptyset(&pending) == 0;
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

/// For operations that need the job's own machine.
void require_within_reach(const JobRef& job, const std::optional<JobRecord>& record) {
  if (record && !is_within_reach(record->owner)) {
    throw EngineError(fmt::format("job {} runs {}: run the command there", text_of(job),
                                  place_text(record->owner)));
  }
}

bool is_expired(const JobSummary& job) { return job.expires != 0 && job.expires <= time_now(); }

} // namespace

SupervisedBackend::Supervise run_helper(std::string_view command) {
  return [name = std::string(command)](const std::vector<std::string>& args) {
    std::vector<char*> argv{const_cast<char*>(k_program), const_cast<char*>(name.c_str())};
    for (const auto& arg : args) {
      argv.push_back(const_cast<char*>(arg.c_str()));
    }
    argv.push_back(nullptr);
    execv(this_program().c_str(), argv.data());
    execv("/proc/self/exe", argv.data()); // Even if another version has been installed meanwhile.
    _exit(EXIT_FAILURE);
  };
}

SupervisedBackend::SupervisedBackend(std::string_view name, std::string root, Supervise supervise)
    : name_(name), store_(root.empty() ? state_folder().string() : std::move(root), name),
      viewer_(store_), supervise_(std::move(supervise)) {}

std::string SupervisedBackend::code_dir(const JobRef& job) const {
  return fmt::format("{}/{}", store_.job_path(job), k_code_folder);
}

GangSite SupervisedBackend::site(const JobSpec& job) const {
  GangSite site;
  std::error_code error;
  site.working_dir = std::filesystem::current_path(error).string();
  site.trainer = job.runs_bundled_trainer() ? find_trainer() : "";
  site.tensorboard = job.tensorboard ? find_program("tensorboard") : "";
  site.secret_env = read_secret_env(job);
  return site;
}

std::string SupervisedBackend::absolute_path(const std::string& path) {
  const auto whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

void SupervisedBackend::resolve_paths(JobSpec& job) const {
  if (!job.working_dir.empty() && job.sync_mode.empty()) { // Otherwise it is relative to the code.
    job.working_dir = absolute_path(job.working_dir);
  }
}

Plan SupervisedBackend::plan(JobSpec job, const Templates& templates) {
  resolve_paths(job);
  return render(job, templates, site(job), {});
}

std::string SupervisedBackend::stock(const Plan& plan, const JobFolder& staged,
                                     const SubmitSink& tell) const {
  return plan.job.sync_mode.empty()
             ? ""
             : bring_code(plan.job, staged.path() + "/" + k_code_folder, tell);
}

void SupervisedBackend::submit(const Plan& plan, const SubmitSink& tell) {
  const auto& text = plan.documents.front().text;
  auto gang = read_gang_plan(text);
  const bool has_code = !plan.job.sync_mode.empty();
  const bool is_brought = has_code || !buckets_of(plan.job).empty();
  const auto check = [&] {
    require_startable(gang, inherited_path());
    report(tell, {.step = SubmitStep::check,
                  .done = true,
                  .text = gang.mounts.empty()
                              ? fmt::format("{} can be run", printable(gang.command.front()))
                              : fmt::format("{} can be run, and its data exists",
                                            printable(gang.command.front()))});
  };
  report(tell, {.step = SubmitStep::check});
  if (!is_brought) {
    check();
  }
  forget_expired(gang.job);
  if (store_.open(gang.job)) {
    throw_name_in_use(gang.job);
  }
  const auto staged = store_.stage();
  std::string answer;
  try {
    staged.write(k_plan_file, text);
    write_templates(staged, plan.templates);
    if (const auto brought = stock(plan, staged, tell); !brought.empty()) {
      report(tell, {.step = SubmitStep::upload, .done = true, .text = brought});
    }
    if (has_code) {
      const auto code = staged.path() + "/" + k_code_folder;
      const auto final_code = code_dir(gang.job);
      if (gang.working_dir.starts_with(final_code)) {
        gang.working_dir.replace(0, final_code.size(), code);
      }
    }
    const auto uses = bring_buckets(plan.job, tell);
    if (is_brought) {
      check();
    }
    report(tell, {.step = SubmitStep::create});
    if (!plan.secret_env.empty()) {
      std::string secrets;
      for (const auto& variable : plan.secret_env) {
        secrets += variable + '\0';
      }
      staged.write(k_secrets_file, secrets);
    }
    staged.write(k_spec_file, write_job_yaml(plan.job));
    auto starting = start_supervisor(gang.job, staged.path());
    answer = starting.answer;
    if (answer.starts_with(k_taken)) {
      const HeldSignals interrupts;
      starting.confirm();
      report(tell, {.step = SubmitStep::create,
                    .done = true,
                    .text = "on " + answer.substr(k_taken.size())});
      if (interrupts.one_came()) { // Before the user has seen its name.
        remove(gang.job);
      }
      return;
    }
  } catch (...) {
    store_.discard(staged);
    throw;
  }
  store_.discard(staged);
  if (answer == k_devices_taken) {
    throw StalePlan("another job has just taken the GPUs that this one was to have: submit again");
  }
  if (answer == k_name_in_use) {
    throw_name_in_use(gang.job);
  }
  throw EngineError(fmt::format("the job was not started: {}",
                                answer.empty() ? "its supervisor ended at once" : answer));
}

SupervisedBackend::Starting SupervisedBackend::start_supervisor(const JobRef& job,
                                                                const std::string& folder) const {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw EngineError(fmt::format("cannot start the job's supervisor: {}", errno_text()));
  }
  Starting starting{.answer = "", .line = Fd(ends[0])};
  Fd its(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) {
    throw EngineError(fmt::format("cannot start the job's supervisor: {}", errno_text()));
  }
  if (pid == 0) {
    setsid(); // Ctrl-C and the terminal's end are not for it.
    unsetenv(environment::k_git_token
                 .name); // Before exec: a rank could read a process's initial environment.
    fcntl(its.get(), F_SETFD, 0);
    supervise_({store_.job_path(job), folder, std::to_string(its.get())});
    _exit(EXIT_FAILURE);
  }
  its.reset();
  starting.answer = read_to_end(starting.line.get());
  return starting;
}

/// If it has ended meanwhile, the job's record says so.
void SupervisedBackend::Starting::confirm() const {
  send(line.get(), "", 1, MSG_NOSIGNAL); // Its NUL.
}

/// Nobody looks after a job that has ended: who comes across one whose time is over deletes it.
void SupervisedBackend::forget_expired(const JobRef& job) const {
  const auto folder = store_.open(job);
  const auto record = folder ? folder->record() : std::nullopt;
  if (!record || !is_expired(record->status)) {
    return;
  }
  const auto plan = folder->read(k_plan_file);
  if (store_.remove(*folder, job) && plan) {
    try {
      remove_far(read_gang_plan(*plan), record->status.uid);
    } catch (const Error&) {
      // Nobody asked: a host that cannot be reached keeps it.
    }
  }
}

JobFolder SupervisedBackend::open(const JobRef& job) const {
  forget_expired(job);
  auto folder = store_.open(job);
  if (!folder) {
    throw NotFound(fmt::format("no job {}: 'dtrain list' shows all jobs", text_of(job)));
  }
  return std::move(*folder);
}

std::vector<std::string> SupervisedBackend::names(const ListQuery& query) {
  std::vector<std::string> names;
  store_.for_each_name(query.namespace_name,
                       [&](int, const JobRef& job) { names.push_back(job.name); });
  return names;
}

std::vector<JobSummary> SupervisedBackend::list(const ListQuery& query) {
  auto jobs = viewer_.list(query.namespace_name);
  std::erase_if(jobs, [&](const JobSummary& job) {
    if (is_expired(job)) {
      forget_expired({job.namespace_name, job.name});
      return true;
    }
    return false;
  });
  return jobs;
}

JobSpec SupervisedBackend::spec(const JobRef& job) {
  const auto folder = open(job);
  const auto text = folder.read(k_spec_file);
  if (!text) {
    throw Error(
        fmt::format("job {} has lost its description {}/{}: submit it from its original command",
                    text_of(job), printable(folder.path()), k_spec_file));
  }
  return read_job_yaml(*text, k_spec_file);
}

InstanceStatus SupervisedBackend::running_instance(const JobRef& job,
                                                   const std::string& instance) const {
  using Clock = std::chrono::steady_clock;
  // For a job that another process has just submitted.
  constexpr std::chrono::seconds k_longest_start{3};
  constexpr std::chrono::milliseconds k_pause{5};
  const auto deadline = Clock::now() + k_longest_start;
  while (true) {
    const auto record = viewer_.record(open(job), job);
    require_within_reach(job, record);
    for (const auto& each : record ? record->status.instances : std::vector<InstanceStatus>()) {
      if (each.name == instance && each.phase == Phase::running) {
        return each;
      }
    }
    if (!record || record->status.phase != Phase::pending || Clock::now() >= deadline) {
      throw EngineError(
          fmt::format("{} of job {} is not running", printable(instance), text_of(job)));
    }
    std::this_thread::sleep_for(k_pause);
  }
}

GangPlan SupervisedBackend::gang_plan(const JobRef& job) const {
  const auto folder = open(job);
  const auto text = folder.read(k_plan_file);
  require_within_reach(job, viewer_.record(folder, job));
  if (!text) {
    throw Error(
        fmt::format("job {} has no {}/{}", text_of(job), printable(folder.path()), k_plan_file));
  }
  return read_gang_plan(*text);
}

/// Its current record. Throws NotFound if it has just been deleted.
JobRecord SupervisedBackend::record_of(const JobFolder& folder, const JobRef& job) const {
  auto record = viewer_.record(folder, job);
  if (!record) {
    throw NotFound(fmt::format("job {} was deleted", text_of(job)));
  }
  return std::move(*record);
}

JobStatus SupervisedBackend::status(const JobRef& job) { return record_of(open(job), job).status; }

void SupervisedBackend::watch_all(const std::string& namespace_name,
                                  const std::vector<std::string>& names, const NewsSink& sink) {
  raise_file_limit(); // Four a job.
  std::list<WatchedJob> jobs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const JobRef job{namespace_name, names[i]};
    try {
      jobs.emplace_back(i, job, open(job));
    } catch (const Error&) {
      sink({.which = i, .error = std::current_exception()});
    }
  }
  const auto tell = [&](WatchedJob& watched) {
    if (!watched.watch.take_changed()) {
      return true;
    }
    JobNews news{.which = watched.which};
    try {
      auto record = record_of(watched.folder, watched.job);
      watched.watch.follow(record.owner);
      auto now = write_job_record(record);
      if (now == watched.last) {
        return true;
      }
      watched.last = std::move(now);
      news.status = std::move(record.status);
    } catch (const Error&) {
      news.error = std::current_exception();
    }
    return sink(news) && !news.error && !is_final(news.status.phase);
  };
  while (true) {
    for (auto it = jobs.begin(); it != jobs.end();) {
      it = tell(*it) ? std::next(it) : jobs.erase(it);
    }
    if (jobs.empty()) {
      return;
    }
    std::vector<JobWatch*> watches;
    watches.reserve(jobs.size());
    for (auto& watched : jobs) {
      watches.push_back(&watched.watch);
    }
    JobWatch::wait_any(watches);
  }
}

void SupervisedBackend::logs(const JobRef& job, const LogQuery& query, const LogSink& sink) {
  if (!query.container.empty()) {
    throw UsageError(fmt::format("--container: the {} backend runs no containers; drop it", name_));
  }
  read_job_logs(viewer_, open(job), job, query, sink);
}

} // namespace dtrain
