#include "backends/batch/batch_backend.h"

#include "backends/batch/code.h"
#include "backends/batch/identity.h"
#include "backends/batch/logs.h"
#include "backends/batch/records_here.h"
#include "backends/batch/split.h"
#include "backends/batch/status.h"
#include "backends/batch/usage.h"
#include "backends/support/files/packed_files.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/progress.h"
#include "backends/support/user/config_folder.h"
#include "backends/support/user/env_file.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace dtrain::batch {
namespace {

/// Between two looks at the records in a job's folder.
constexpr std::chrono::milliseconds k_first_wait{100};
constexpr std::chrono::milliseconds k_longest_wait{2000};

/// `pwd`
std::string working_dir_here() {
  const std::unique_ptr<char, decltype(&std::free)> here(get_current_dir_name(), &std::free);
  return here ? here.get() : "/";
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

/// Adds the last lines of what failed; for a job that no rank made fail, the queue's messages say
/// why.
void add_last_lines(std::string text, JobStatus& status) {
  FailureCause& cause = *status.cause;
  constexpr std::size_t k_longest = 2048;
  text.erase(text.find_last_not_of('\n') + 1);
  for (const auto line : text.empty() ? std::vector<std::string_view>() : split(text, '\n')) {
    cause.last_stderr.emplace_back(line.substr(0, k_longest));
  }
  if (cause.message.empty() && cause.instance.empty()) {
    cause.message = !cause.last_stderr.empty() ? cause.last_stderr.back()
                    : !status.reason.empty()   ? status.reason
                                               : "the queue ended it";
  }
}

/// Its line "? WHY", if accounting did not answer.
std::string unheard_in(std::string_view text) {
  const auto begin = text.find("\n? ");
  const auto line = begin == std::string_view::npos ? "" : text.substr(begin + 3);
  return printable(line.substr(0, line.find('\n')));
}

/// In an answer of ask_job() or ask_all(): the cluster that was asked.
std::string cluster_of(std::string_view answer) {
  constexpr std::string_view k_line = "\ncluster ";
  const auto at = answer.find(k_line);
  const auto rest = at == std::string_view::npos ? "" : answer.substr(at + k_line.size());
  return std::string(rest.substr(0, rest.find('\n')));
}

/// The file with the variables. Workers of a launcher have no process, and so use the launcher's
/// variables.
std::string environment_file(const Found& found, const JobStatus& status,
                             const std::string& instance) {
  const std::string& first = status.instances.front().name;
  const std::string& whose = first == instance_name(k_launcher, 0) ? first : instance;
  return fmt::format("{}/{}.env", found.folder, found.record.files_of(whose));
}

} // namespace

std::string BatchBackend::engine_script(std::string_view name) const {
  return std::string(
      builtin_template(fmt::format("{}/commands/{}.sh", login_.system().engine, name)).text);
}

std::string BatchBackend::batch_script(std::string_view name) {
  return std::string(builtin_template(fmt::format("batch/commands/{}.sh", name)).text);
}

LoginFacts BatchBackend::login_facts(const JobSpec& job) const {
  if (login_.is_here() && !job.runs_bundled_trainer()) { // No program is asked.
    return {.state_folder = state_folder().string(), .working_dir = working_dir_here()};
  }
  const std::string text = login_.run(batch_script("survey"));
  const auto lines = split(text, '\n');
  if (lines.size() < 3) {
    throw EngineError(
        fmt::format("{}{}: the shell there printed nothing", login_.system().name, login_.place()));
  }
  return {.state_folder = std::string(lines[0]),
          .working_dir = std::string(lines[1]),
          .trainer = std::string(lines[2])};
}

Plan BatchBackend::plan(JobSpec job, const Templates& templates) {
  const LoginFacts facts = login_facts(job);
  Plan plan;
  plan.secret_env = read_secret_env(job);
  plan.documents.push_back(
      {std::string(login_.system().script), render_script(job, templates, facts)});
  plan.job = std::move(job);
  plan.templates = templates;
  return plan;
}

void BatchBackend::expect(const JobSpec& job) {
  if (!login_.is_here() || !job.sync_mode.empty()) {
    return;
  }
  try {
    submitter_ =
        start_submitter(login_, job_folder(login_.system(), {job.namespace_name, job.name}),
                        queue_options(job).log);
  } catch (const EngineError&) { // submit() says it, of a job that nothing else is wrong with.
  }
}

void BatchBackend::submit(const Plan& plan, const SubmitSink& tell) {
  const JobRef ref{plan.job.namespace_name, plan.job.name};
  Submission job;
  const QueueOptions options = queue_options(plan.job);
  job.folder = job_folder(login_.system(), ref);
  job.log = options.log;
  job.script = plan.documents.front().text;
  job.files = {{"job.yaml", write_job_yaml(plan.job)}};
  if (!plan.secret_env.empty()) {
    job.files.emplace_back("secrets", as_script(plan.secret_env));
  }
  job.has_code = !plan.job.sync_mode.empty();
  job.code = job.has_code ? packed_code(plan.job, tell) : "";
  const Time now = time_now();
  job.record = login_.is_here() ? write_job_line(plan.job, options, "", now, cluster_here(), now)
                                : write_job_line(plan.job, options, "", now);
  report(tell, {.step = SubmitStep::create});
  std::string id;
  try {
    id = login_.is_here() && !job.has_code
             ? submit_here(login_, job, std::move(submitter_))
             : submit_by_script(login_, engine_script("cluster") + batch_script("submit"), job);
  } catch (const EngineError& error) {
    const std::string asked = refused_options(job.script, error.what());
    throw EngineError(asked.empty() ? error.what() : fmt::format("{}: {}", error.what(), asked));
  }
  if (id.empty()) {
    throw_name_in_use(ref);
  }
  report(tell, {.step = SubmitStep::create,
                .done = true,
                .text = fmt::format("as {}'s job {}", login_.system().name, id)});
}

Found BatchBackend::find(const JobRef& job) const {
  const std::string name = fmt::format("{}/{}", job.namespace_name, job.name);
  const std::string answer = ask_job(job);
  const std::string folder = answer.substr(0, answer.find('\n'));
  const auto text = std::string_view(answer).substr(std::min(folder.size(), answer.size()));
  const auto gap = text.find("\n\n");
  auto records = read_records(text.substr(0, gap));
  if (const auto other = split(folder, ' '); records.empty() && other.size() == 2) {
    throw EngineError(fmt::format("you have no job {}; {} job {} of that name belongs to {}, and "
                                  "only its owner can read or end it",
                                  name, login_.system().name, printable(other[1]),
                                  printable(other[0])));
  }
  if (records.empty()) {
    throw NotFound(fmt::format("no job {}: 'dtrain list' shows all jobs", name));
  }
  const auto said = text.substr(std::min(gap, text.size()));
  Found found{&login_.system(), folder, std::move(records.begin()->second), Queue(read_jobs(said)),
              unheard_in(said)};
  find_number(found.record, found.queue);
  mark_elsewhere(found.record, cluster_of(text));
  return found;
}

std::vector<JobSummary> BatchBackend::list(const ListQuery& query) {
  const std::string text = ask_all();
  const auto gap = text.starts_with('\n') ? 0 : text.find("\n\n");
  auto records = read_records(std::string_view(text).substr(0, gap));
  const Queue queue(read_jobs(std::string_view(text).substr(std::min(gap, text.size()))));
  const std::string cluster = cluster_of(text);
  std::vector<JobSummary> jobs;
  for (auto& [key, record] : records) {
    find_number(record, queue);
    mark_elsewhere(record, cluster);
    if (query.namespace_name.empty() || record.status.namespace_name == query.namespace_name) {
      jobs.push_back(status_of(record, queue, login_.system()));
    }
  }
  return jobs;
}

JobStatus BatchBackend::status(const JobRef& job) {
  const Found found = find(job);
  has_answered_ = true;
  return whole_status(found);
}

JobStatus BatchBackend::whole_status(const Found& found) const {
  JobStatus status = found.status();
  if (status.cause) {
    const std::string file =
        status.cause->instance.empty()
            ? std::string(login_.system().log) // Ranks may not have been started.
            : found.record.files_of(status.cause->instance) + ".err";
    add_last_lines(login_.run(R"(tail -n 20 "$1" 2>/dev/null | tail -c 40960)",
                              {fmt::format("{}/{}", found.folder, file)}),
                   status);
  }
  return status;
}

Followed BatchBackend::follow(const JobRef& job) const {
  return {[this, job] { return find(job); },
          [this](const Found& found) { return read_records_of(found); }, has_answered_};
}

std::string BatchBackend::read_records_of(const Found& found) const {
  if (login_.is_here() && found.record.tasks.empty()) {
    return read_records_here(found.folder);
  }
  return login_.run(batch_script("read_records") + R"sh(tasks=$2
! cd "$1" 2>/dev/null || (records)
exit 0)sh",
                    {found.folder, found.record.tasks.empty() ? "" : "yes"});
}

void BatchBackend::watch_all(const std::string& namespace_name,
                             const std::vector<std::string>& names, const NewsSink& sink) {
  auto wait = k_first_wait;
  std::map<std::size_t, std::string> before; // State of jobs that are still watched.
  std::vector<Followed> jobs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    before[i];
    jobs.push_back(follow({namespace_name, names[i]}));
  }
  const auto tell = [&](std::size_t which, std::string& last) {
    JobNews news{.which = which};
    try {
      news.status = whole_status(jobs[which].look());
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

void BatchBackend::logs(const JobRef& job, const LogQuery& query, const LogSink& sink) {
  const Found found = find(job);
  has_answered_ = true;
  print_logs(login_, found.folder, found.record, query, sink,
             [this, followed = follow(job)]() mutable { return whole_status(followed.look()); });
}

/// Throws EngineError of a job that another cluster has.
void BatchBackend::require_here(const JobRecord& record) const {
  if (record.is_elsewhere) {
    throw EngineError(fmt::format("job {}/{} is on cluster {}, which this machine cannot reach: "
                                  "run this on a login node of that cluster",
                                  record.status.namespace_name, record.status.name,
                                  printable(record.cluster)));
  }
}

void BatchBackend::remove(const JobRef& job) {
  const Found found = find(job);
  const JobRecord& record = found.record;
  if (!record.has_ended()) {
    require_here(record);
  }
  login_.run(engine_script("end") + batch_script("remove"),
             {found.folder, record.is_elsewhere ? "elsewhere" : record.id, job.name,
              comment_of(job), std::to_string(record.submitted / k_second)});
}

bool BatchBackend::hold(const JobRef& job, bool held) {
  const Found found = find(job);
  const JobStatus status = found.status();
  if (is_final(status.phase)) {
    throw UsageError(
        fmt::format("job {0}/{1} has already ended: 'dtrain clone -n {0} {1}' submits it again",
                    job.namespace_name, job.name));
  }
  if ((status.phase == Phase::suspended) == held ||
      (!held && found.record.tasks.empty() && status.phase == Phase::running)) {
    return false;
  }
  require_here(found.record);
  login_.run(engine_script(held ? "suspend" : "resume"),
             {found.record.id, found.record.may_requeue ? "requeue" : ""});
  return true;
}

bool BatchBackend::suspend(const JobRef& job) { return hold(job, true); }
bool BatchBackend::resume(const JobRef& job) { return hold(job, false); }

int BatchBackend::exec(const JobRef& job, const std::string& instance,
                       const std::vector<std::string>& command) {
  const Found found = find(job);
  const JobStatus status = found.status();
  const auto at = std::find_if(status.instances.begin(), status.instances.end(),
                               [&](const InstanceStatus& each) { return each.name == instance; });
  if (at == status.instances.end() || at->phase != Phase::running) {
    throw EngineError(fmt::format("{} of job {}/{} is not running; nothing to exec into", instance,
                                  job.namespace_name, job.name));
  }
  require_here(found.record);
  std::vector<std::string> args = {found.record.part_of(instance).raw_id, at->node,
                                   environment_file(found, status, instance)};
  args.insert(args.end(), command.begin(), command.end());
  return login_.run_in_foreground(engine_script("exec"), args);
}

/// Reads from the folder that all nodes share.
void BatchBackend::read_files(const JobRef& job, const std::string& instance,
                              const std::string& path, const ByteSink& sink) {
  const Found found = find(job);
  const JobStatus status = found.status();
  const auto where = fmt::format("{}/{}{}", job.name, instance, login_.place());
  // The folder in which the rank's command was started, from its variables (ranks.sh).
  const std::string script = R"sh(if [ "$(tail -n 1 "$1" 2>/dev/null)" != "# all" ]; then
  echo "it has not started" >&2
  exit 1
fi
set -- "$(. "$1" >/dev/null 2>&1 && printf %s "$PWD")" "$2"
)sh";
  try {
    const auto result = read_packed(
        login_.command(script + pack_script(), {environment_file(found, status, instance), path}),
        where, sink);
    if (!result.ending.good()) {
      login_.refuse(result);
    }
  } catch (const NotFound& error) {
    throw NotFound(fmt::format(
        "{}; for a file on the node's local disk: dtrain exec {} -i {} -- tar c PATH | tar x",
        error.what(), job.name, instance));
  }
}

/// One step per job (or task of an array), on all of its nodes.
std::vector<InstanceUsage> BatchBackend::usage(const JobRef& job) {
  const Found found = find(job);
  require_here(found.record);
  const JobStatus status = found.status();
  std::map<std::string, std::pair<std::set<std::string>, std::string>>
      jobs; // Nodes and ranks by number.
  for (const InstanceStatus& each : status.instances) {
    if (each.phase == Phase::running && each.pid != 0) {
      auto& [nodes, ranks] = jobs[found.record.part_of(each.name).raw_id];
      nodes.insert(each.node);
      ranks += fmt::format("{} {} {}\n", each.name, each.node, each.pid);
    }
  }
  std::string text;
  for (const auto& [id, job_of_id] : jobs) {
    const auto& [nodes, ranks] = job_of_id;
    text += login_.run(engine_script("usage"), {id, fmt::format("{}", fmt::join(nodes, ",")),
                                                std::to_string(nodes.size()), ranks});
  }
  return read_usage(text, status.instances);
}

std::vector<JobEvent> BatchBackend::events(const JobRef& job) {
  return read_events(login_.run(R"sh(cd "$1" || exit
for file in submit.err $2; do
  [ ! -s "$file" ] || { echo "$file $(stat --format=%Y "$file")" && tail -n 50 "$file" | sed '/^$/d' && echo; }
done)sh",
                                {find(job).folder, std::string(login_.system().logs)}));
}

JobSpec BatchBackend::spec(const JobRef& job) {
  return read_job_yaml(login_.run(R"sh(cat "$1/job.yaml")sh", {find(job).folder}), "job.yaml");
}

} // namespace dtrain::batch
