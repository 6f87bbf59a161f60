#include "backends/slurm/slurm_backend.h"

#include "backends/slurm/code.h"
#include "backends/slurm/logs.h"
#include "backends/slurm/nodes.h"
#include "backends/slurm/patience.h"
#include "backends/slurm/refusal.h"
#include "backends/slurm/script.h"
#include "backends/slurm/split.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/progress.h"
#include "backends/support/user/env_file.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <thread>

namespace dtrain::slurm {
namespace {

/// Slurm tells nobody of a change. What its controller is asked is one line of one job.
constexpr std::chrono::milliseconds k_first_wait{100};

/// One of templates/slurm/commands.
std::string script(std::string_view name) {
  return std::string(builtin_template(fmt::format("slurm/commands/{}.sh", name)).text);
}

/// The sh that makes a file, for submit.sh.
std::string made(std::string_view name, std::string_view text) {
  return fmt::format("printf %s {} >{} || fail\n", quote_sh(text), name);
}

/// The record's line around the number that Slurm gives the job.
std::string around_id(std::string_view line) {
  constexpr std::string_view k_id = R"("id":")";
  const auto begin = line.find(k_id) + k_id.size();
  return fmt::format("begin={}\nrest={}\n", quote_sh(line.substr(0, begin)),
                     quote_sh(line.substr(begin, line.find_last_not_of('\n') + 1 - begin)));
}

/// KEY=VALUE each, as sh reads them.
std::string as_script(const std::vector<std::string>& variables) {
  std::string text;
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=');
    text += fmt::format("export {}={}\n", variable.substr(0, equals),
                        quote_sh(variable.substr(equals + 1)));
  }
  return text;
}

[[noreturn]] void throw_name_in_use(const JobRef& job) {
  throw UsageError(fmt::format("job {}/{} exists already: choose another --name, or first run "
                               "dtrain delete -n {} {}",
                               job.namespace_name, job.name, job.namespace_name, job.name));
}

/// What failed said last; of a job that no rank made fail, Slurm's own words are why.
void add_last_lines(std::string text, FailureCause& cause) {
  constexpr std::size_t k_longest = 2048;
  text.erase(text.find_last_not_of('\n') + 1);
  for (const auto line : text.empty() ? std::vector<std::string_view>() : split(text, '\n')) {
    cause.last_stderr.emplace_back(line.substr(0, k_longest));
  }
  if (cause.message.empty()) {
    cause.message = cause.last_stderr.empty() ? "srun ended it" : cause.last_stderr.back();
  }
}

} // namespace

/// What the machine has that Slurm's commands are run on, one answer a line.
const SlurmBackend::Place& SlurmBackend::place() const {
  if (!place_) {
    const std::string text =
        login_.run(R"sh(printf '%s\n' "${XDG_STATE_HOME:-$HOME/.local/state}/dtrain" \
  "$(pwd)" "$(command -v dtrain-trainer)")sh");
    const auto lines = split(text, '\n');
    if (lines.size() < 3) {
      throw EngineError(fmt::format("Slurm{}: no answer from its shell", login_.place()));
    }
    place_ = Place{std::string(lines[0]), std::string(lines[1]), std::string(lines[2])};
  }
  return *place_;
}

std::string SlurmBackend::folder(const JobRef& job) const {
  return job_folder(place().state_folder, job);
}

Surroundings SlurmBackend::survey(const JobSpec& job) const {
  Surroundings here;
  here.state_folder = place().state_folder;
  here.working_dir = place().working_dir;
  here.trainer = place().trainer;
  here.secret_env = read_secret_env(job);
  return here;
}

Plan SlurmBackend::render(const JobSpec& job, const Templates& templates,
                          const Surroundings& here) const {
  return render_script(job, templates, here);
}

void SlurmBackend::submit(const Plan& plan, const SubmitSink& tell) {
  const JobRef job{plan.job.namespace_name, plan.job.name};
  const bool has_code = !plan.job.sync_mode.empty();
  const auto code = has_code ? packed_code(plan.job, tell) : std::string();
  report(tell, {.step = SubmitStep::create});
  auto files = fmt::format("has_code={}\n", has_code ? "yes" : "") +
               made(k_script, plan.documents.front().text) +
               made("job.yaml", write_job_yaml(plan.job)) +
               around_id(write_job_line(plan.job, "", time_now()));
  if (!plan.secret_env.empty()) {
    files += made("secrets", as_script(plan.secret_env));
  }
  std::string id;
  try {
    id = login_.run(script("submit"), {folder(job)},
                    fmt::format("{}\n{}{}", files.size(), files, code));
  } catch (const EngineError& error) {
    const std::string asked = asked_for(plan.documents.front().text, error.what());
    throw EngineError(asked.empty() ? error.what() : fmt::format("{}: {}", error.what(), asked));
  }
  id.erase(id.find_last_not_of('\n') + 1);
  if (id == "taken") {
    throw_name_in_use(job);
  }
  report(tell, {.step = SubmitStep::create, .done = true, .text = "as Slurm's job " + id});
}

SlurmBackend::Found SlurmBackend::find(const JobRef& job) const {
  const std::string name = fmt::format("{}/{}", job.namespace_name, job.name);
  const std::string text =
      login_.run(script("find"), {"slurm/" + name, k_queue_format, k_account_fields, name});
  const auto gap = text.find("\n\n");
  const auto records = read_records(std::string_view(text).substr(0, gap));
  if (const auto other = split(std::string_view(text).substr(0, text.find('\n')), ' ');
      records.empty() && other.size() == 2) {
    throw EngineError(
        fmt::format("no job {} of yours; Slurm's job {} of that name is of {}, who alone "
                    "has its files ({})",
                    name, printable(other[1]), printable(other[0]), folder(job)));
  }
  if (records.empty()) {
    throw NotFound(fmt::format("no job {}: dtrain list shows those there are", name));
  }
  Found found{records.begin()->second, {}};
  const auto queue = read_queue(std::string_view(text).substr(std::min(gap, text.size())));
  if (!queue.empty()) {
    found.queued = queue.front();
  }
  return found;
}

std::vector<JobSummary> SlurmBackend::list(const ListQuery& query) {
  const std::string text = login_.run(script("list"), {k_queue_format, k_account_fields});
  const auto gap = text.starts_with('\n') ? 0 : text.find("\n\n");
  const auto records = read_records(std::string_view(text).substr(0, gap));
  std::map<std::string, QueuedJob> queue;
  for (auto& each : read_queue(std::string_view(text).substr(std::min(gap, text.size())))) {
    queue.emplace(each.id, each);
  }
  std::vector<JobSummary> jobs;
  for (const auto& [key, record] : records) {
    if (query.namespace_name.empty() || record.status.namespace_name == query.namespace_name) {
      const auto found = queue.find(record.id);
      jobs.push_back(status_of(record, found == queue.end() ? nullptr : &found->second));
    }
  }
  return jobs;
}

JobStatus SlurmBackend::status(const JobRef& job) {
  const Found found = find(job);
  JobStatus status = status_of(found.record, found.queued ? &*found.queued : nullptr);
  if (status.cause) {
    const std::string file =
        status.cause->instance.empty()
            ? "slurm.log" // What srun said: the ranks may not have been started.
            : fmt::format("{}/{}.err", std::max(found.record.run.number, 0),
                          status.cause->instance);
    add_last_lines(login_.run(R"(tail -n 20 "$1" 2>/dev/null | tail -c 40960)",
                              {fmt::format("{}/{}", folder(job), file)}),
                   *status.cause);
  }
  return status;
}

void SlurmBackend::watch_all(const std::string& namespace_name,
                             const std::vector<std::string>& names, const NewsSink& sink) {
  auto wait = k_first_wait;
  Patience patience;
  std::map<std::size_t, std::string> before; // Of those that are still watched.
  for (std::size_t i = 0; i < names.size(); ++i) {
    before[i];
  }
  const auto tell = [&](std::size_t which, std::string& last) {
    JobNews news{.which = which};
    try {
      news.status = patience.ask([&] { return status({namespace_name, names[which]}); });
    } catch (const NotFound& error) {
      news.error = std::make_exception_ptr(
          last.empty()
              ? error
              : NotFound(fmt::format("job {}/{} was deleted", namespace_name, names[which])));
      sink(news);
      return false;
    } catch (const Error&) {
      news.error = std::current_exception();
      sink(news);
      return false;
    }
    const JobStatus& now = news.status;
    std::string text =
        fmt::format("{} {} {}", static_cast<int>(now.phase), now.restarts, now.reason);
    for (const InstanceStatus& each : now.instances) {
      text += fmt::format(" {}", static_cast<int>(each.phase));
    }
    if (text == last) {
      return true;
    }
    wait = k_first_wait;
    last = std::move(text);
    return sink(news) && !is_final(now.phase);
  };
  while (true) {
    for (auto it = before.begin(); it != before.end();) {
      it = tell(it->first, it->second) ? std::next(it) : before.erase(it);
    }
    if (before.empty()) {
      return;
    }
    std::this_thread::sleep_for(wait);
    wait = std::min(wait * 3 / 2, k_longest_wait);
  }
}

void SlurmBackend::logs(const JobRef& job, const LogQuery& query, const LogSink& sink) {
  const Found found = find(job);
  std::vector<std::string> instances;
  for (const InstanceStatus& each : found.record.status.instances) {
    if (query.instance.empty() || query.instance == each.name) {
      instances.push_back(each.name);
    }
  }
  if (query.follow) {
    follow_logs(login_, folder(job), instances, query, sink,
                [this, job, patience = Patience()]() mutable {
                  return patience.ask([&] { return status(job); });
                });
  } else {
    const int run = std::max(found.record.run.number, 0);
    print_logs(login_, fmt::format("{}/{}", folder(job), query.previous ? run - 1 : run), instances,
               query, sink);
  }
}

void SlurmBackend::remove(const JobRef& job) {
  const Found found = find(job);
  login_.run(script("remove"), {folder(job), found.record.id});
}

std::vector<CheckResult> SlurmBackend::check() {
  std::vector<CheckResult> results;
  const auto add = [&](std::string what, const std::string& script) {
    try {
      std::string found = login_.run(script);
      results.push_back(
          {CheckResult::Level::ok, std::move(what), found.substr(0, found.find('\n'))});
    } catch (const EngineError& error) {
      results.push_back({CheckResult::Level::error, std::move(what), error.what()});
    }
  };
  add("Slurm", "sinfo --version");
  add("controller", "scontrol ping");
  add("partitions",
      R"sh(all=$(sinfo --noheader --format=%P) && echo "$all" | sort -u | paste -sd' ' -)sh");
  add("job folder",
      R"sh(f=${XDG_STATE_HOME:-$HOME/.local/state}/dtrain/slurm
mkdir -p "$f" && echo "$f (the nodes must share it)")sh");
  return results;
}

/// sbatch's own opinion.
std::vector<Plan::Document> SlurmBackend::try_plan(const Plan& plan) {
  login_.run("sbatch --test-only", {}, plan.documents.front().text);
  return plan.documents;
}

bool SlurmBackend::hold(const JobRef& job, bool held) {
  const Found found = find(job);
  const JobStatus status = status_of(found.record, found.queued ? &*found.queued : nullptr);
  if (is_final(status.phase)) {
    throw UsageError(fmt::format("job {}/{} has ended: submit it again, or clone it",
                                 job.namespace_name, job.name));
  }
  if (status.phase == Phase::running) {
    if (!held) {
      return false;
    }
    throw UsageError(fmt::format("job {}/{} runs already, and Slurm lets only its operators stop "
                                 "one: scontrol suspend {}",
                                 job.namespace_name, job.name, found.record.id));
  }
  if ((status.phase == Phase::suspended) == held) {
    return false;
  }
  login_.run(held ? R"sh(scontrol uhold "$1")sh" : R"sh(scontrol release "$1")sh",
             {found.record.id});
  return true;
}

bool SlurmBackend::suspend(const JobRef& job) { return hold(job, true); }
bool SlurmBackend::resume(const JobRef& job) { return hold(job, false); }

std::vector<NodeStatus> SlurmBackend::nodes() {
  return read_nodes(login_.run(fmt::format("sinfo --noheader --Node --Format={}", k_node_format)));
}

int SlurmBackend::exec(const JobRef& job, const std::string& instance,
                       const std::vector<std::string>& command) {
  const Found found = find(job);
  const JobStatus status = status_of(found.record, found.queued ? &*found.queued : nullptr);
  const auto at = std::find_if(status.instances.begin(), status.instances.end(),
                               [&](const InstanceStatus& each) { return each.name == instance; });
  if (at == status.instances.end() || at->phase != Phase::running) {
    throw EngineError(fmt::format("{} of job {}/{} does not run: nothing can be run beside it",
                                  instance, job.namespace_name, job.name));
  }
  // A launcher's workers have no process, and so no variables of their own: those of the launcher.
  const std::string& first = status.instances.front().name;
  const std::string& whose = first == instance_name(k_launcher, 0) ? first : instance;
  std::vector<std::string> args = {
      found.record.id, at->node,
      fmt::format("{}/{}/{}.env", folder(job), std::max(found.record.run.number, 0), whose)};
  args.insert(args.end(), command.begin(), command.end());
  return login_.run_in_foreground(script("exec"), args);
}

void SlurmBackend::scale(const JobRef& job, int workers) {
  find(job);
  throw UsageError(
      fmt::format("Slurm gives a job its nodes once, when it starts: submit it anew "
                  "with dtrain clone -n {} {} --name=NAME --workers={}; a trainer that "
                  "has --resume goes on from its last checkpoint",
                  job.namespace_name, job.name, workers));
}

JobSpec SlurmBackend::spec(const JobRef& job) {
  find(job);
  return read_job_yaml(login_.run(R"sh(cat "$1/job.yaml")sh", {folder(job)}), "job.yaml");
}

} // namespace dtrain::slurm
