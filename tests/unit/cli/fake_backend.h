// A backend in memory, and a context around it, so that a test reads like a session.
#pragma once

#include "backends/backend.h"
#include "cli/context.h"
#include "cli/program.h"
#include "submit/errors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace dtrain::test {

inline constexpr Time k_now = 1'700'000'600 * k_second;

/// What the engine holds; a test fills it and looks at it afterwards.
struct FakeEngine {
  std::vector<JobStatus> jobs;
  std::vector<LogLine> lines;
  std::vector<JobStatus> changes; ///< What watch() tells, one after the other.
  std::vector<CheckResult> checks;
  std::vector<JobSpec> submitted;
  LogQuery last_query;
  EngineAccess access; ///< The last backend's.
  int opened = 0;      ///< Backends made.
  int plans = 0;       ///< Made.
  int stale_plans = 0; ///< How many of them, the first, cannot be submitted.
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(FakeEngine& engine) : engine_(engine) {}

  std::string_view name() const override { return "fake"; }

  std::string default_namespace() override {
    return engine_.access.get("context").empty() ? "default"
                                                 : "of-" + engine_.access.get("context");
  }

  Plan plan(JobSpec job, const Templates& templates) override {
    ++engine_.plans;
    Plan plan;
    plan.job = job;
    plan.templates = templates;
    plan.documents.push_back({"job.yaml", "the document of " + job.name + "\n"});
    if (job.gpus > 0) {
      plan.notices.emplace_back("no GPUs here");
    }
    return plan;
  }

  void submit(const Plan& plan, const SubmitSink&) override {
    if (engine_.plans <= engine_.stale_plans) {
      throw StalePlan("stale");
    }
    engine_.submitted.push_back(plan.job);
    JobStatus job;
    job.name = plan.job.name;
    job.namespace_name = plan.job.namespace_name;
    job.phase = Phase::running;
    engine_.jobs.push_back(job);
  }

  std::vector<JobSummary> list(const ListQuery& query) override {
    std::vector<JobSummary> found;
    for (const auto& job : engine_.jobs) {
      if (query.namespace_name.empty() || query.namespace_name == job.namespace_name) {
        found.push_back(job);
      }
    }
    return found;
  }

  JobStatus status(const JobRef& job) override { return *find(job); }

  void watch_all(const std::string&, const std::vector<std::string>& names,
                 const NewsSink& sink) override {
    std::set<std::string> watched(names.begin(), names.end());
    for (const auto& change : engine_.changes) {
      const auto which = std::find(names.begin(), names.end(), change.name) - names.begin();
      if (watched.contains(change.name) &&
          !sink({.which = static_cast<std::size_t>(which), .status = change})) {
        watched.erase(change.name);
      }
    }
  }

  void logs(const JobRef&, const LogQuery& query, const LogSink& sink) override {
    engine_.last_query = query;
    for (const auto& line : engine_.lines) {
      if ((query.instance.empty() || query.instance == line.instance) && !sink(line)) {
        return;
      }
    }
  }

  void remove(const JobRef& job) override { engine_.jobs.erase(find(job)); }

  std::vector<CheckResult> check() override { return engine_.checks; }

  JobSpec spec(const JobRef& job) override { throw NotFound(job.name + ": none"); }

 private:
  std::vector<JobStatus>::iterator find(const JobRef& job) {
    const auto found =
        std::find_if(engine_.jobs.begin(), engine_.jobs.end(), [&](const JobStatus& other) {
          return other.name == job.name && other.namespace_name == job.namespace_name;
        });
    if (found == engine_.jobs.end()) {
      throw NotFound("none");
    }
    return found;
  }

  FakeEngine& engine_;
};

/// A folder of its own, gone with the test.
struct TempFolder {
  std::filesystem::path path;
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dtrain-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot make " + pattern);
    }
    path = pattern;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
};

/// One run of the program after another, against one engine.
struct Session {
  FakeEngine engine;
  TempFolder folder;
  std::filesystem::path config = folder.path / "dtrain" / "config.yaml";
  Terminal terminal;
  int status = -1;
  std::string out;
  std::string err;

  Session& run(const std::vector<std::string>& words) {
    Stream out_stream;
    Stream err_stream;
    out_stream.set_terminal(terminal);
    Context context{out_stream, err_stream,
                    [this](std::string_view, const EngineAccess& access) {
                      engine.access = access;
                      ++engine.opened;
                      return std::make_unique<FakeBackend>(engine);
                    },
                    [] { return k_now; }, config};
    status = run_program(context, words);
    out = out_stream.text();
    err = err_stream.text();
    return *this;
  }
};

/// A job of `workers` instances that began 600 s ago.
inline JobStatus job(const std::string& name, Phase phase, int workers = 2) {
  JobStatus status;
  status.name = name;
  status.namespace_name = "default";
  status.trainer = "DTRAINJOB";
  status.phase = phase;
  status.created = k_now - 600 * k_second;
  status.started = status.created;
  status.ended = is_final(phase) ? k_now : 0;
  status.gpus_requested = workers;
  status.node = "host";
  status.uid = "uid-" + name;
  for (int i = 0; i < workers; ++i) {
    InstanceStatus instance;
    instance.name = "worker-" + std::to_string(i);
    instance.phase = phase;
    instance.started = status.created + (i + 1) * k_second;
    instance.ended = status.ended;
    instance.is_chief = i == 0;
    instance.gpus = 1;
    instance.node = "host";
    status.instances.push_back(instance);
  }
  return status;
}

/// The same, failed because its last worker exited with 3.
inline JobStatus failed_job(const std::string& name) {
  JobStatus status = job(name, Phase::failed);
  FailureCause cause;
  cause.instance = "worker-1";
  cause.rank = 1;
  cause.node = "host";
  cause.exit_code = 3;
  cause.last_stderr = {"Traceback:", "  boom"};
  status.cause = cause;
  return status;
}

} // namespace dtrain::test
