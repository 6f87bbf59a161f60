#include "backends/ssh/ssh_backend.h"

#include "backends/ssh/fan_out.h"
#include "backends/ssh/host_list.h"
#include "backends/ssh/host_survey.h"
#include "backends/ssh/login_line.h"
#include "backends/ssh/payload.h"
#include "backends/ssh/port_forward.h"
#include "backends/ssh/ssh_channel.h"
#include "backends/ssh/ssh_command.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/programs.h"
#include "backends/supervised/supervise.h"
#include "backends/support/files/packed_files.h"
#include "backends/support/os/files.h"
#include "backends/support/os/foreground.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/options/duration.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <set>

namespace dtrain::ssh {

namespace {

constexpr const char* k_template = "ssh/job.yaml";
constexpr const char* k_code = "code"; ///< In the job's folder on a host (preflight.sh).

/// 0: not said.
int host_timeout_ms(const std::string& text) {
  using std::chrono::milliseconds;
  if (text.empty()) {
    return 0;
  }
  constexpr std::chrono::seconds k_least{5};
  constexpr std::chrono::hours k_most{24};
  const auto time = parse_duration(text);
  if (!time || *time < k_least || *time > k_most) {
    throw UsageError(fmt::format("--host-timeout={}: give a time from {} to {}, like 60s",
                                 printable(text), format_duration(k_least),
                                 format_duration(k_most)));
  }
  return static_cast<int>(time->count());
}

} // namespace

int supervise_hosts(const std::vector<std::string>& args) {
  return supervise_main(args, [](const SupervisedJob& job) -> std::unique_ptr<Channel> {
    return std::make_unique<SshChannel>(job.uid, job.folder, job.is_new);
  });
}

namespace {

/// Places each rank where it would be with `more` workers, too, so that none moves when workers are
/// added. A launcher is beside the first of its workers.
void place(const std::vector<HostSlots>& hosts, int more, std::vector<GangRank>& ranks) {
  const int launchers = ranks.front().role == k_launcher ? 1 : 0;
  const auto placed = place_ranks(hosts, static_cast<int>(ranks.size()) - launchers + more);
  std::size_t next = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].role == k_launcher) {
      ranks[i].host = placed.front();
      continue;
    }
    ranks[i].host = placed[next++];
    if (ranks[i].role == k_worker &&
        (i + 1 == ranks.size() || ranks[i + 1].role != k_worker)) { // The room of those to come.
      next += static_cast<std::size_t>(more);
    }
  }
}

} // namespace

/// Empty where none are named.
std::vector<HostSlots> SshBackend::hosts(const std::string& include,
                                         const std::string& exclude) const {
  const auto list = access_.get("hosts");
  const auto file = access_.get("hostfile");
  if (!list.empty() && !file.empty()) {
    throw UsageError("--hosts and --hostfile: give one of them");
  }
  const auto* wcoll = k_wcoll.value();
  auto named = !file.empty()                      ? read_hostfile("--hostfile", file)
               : list.empty() && wcoll != nullptr ? read_hostfile(k_wcoll.name, wcoll)
                                                  : parse_hosts(list);
  return choose_hosts(std::move(named), {access_.get("exclude-hosts"), include, exclude});
}

GangSite SshBackend::site(const JobSpec& job) const {
  GangSite site = SupervisedBackend::site(job);
  site.hosts = hosts(engine_value(job, "include"), engine_value(job, "exclude"));
  site.interface = access_.get("interface");
  site.host_timeout_ms = host_timeout_ms(access_.get("host-timeout"));
  site.tensorboard = job.tensorboard ? "tensorboard" : ""; // The host's.
  if (site.hosts.empty()) {
    throw UsageError("no hosts: give --hosts=h1,h2,h3, --hostfile=FILE or a profile");
  }
  return site;
}

Plan SshBackend::render(const JobSpec& job, const Templates& templates, const GangSite& site,
                        const std::vector<std::string>& /*own_gpus*/) const {
  GangParts parts;
  parts.template_name = k_template;
  parts.code_dir = k_code;
  parts.ranks = planned_ranks(job, true);
  place(site.hosts, std::max(job.max_workers - job.workers, 0), parts.ranks);
  for (const auto& text : job.data_dirs) {
    const auto mount = parse_mount("--data-dir", text);
    if (mount.source != mount.target) {
      throw UsageError(fmt::format("--data-dir={}: the ssh backend mounts nothing on the hosts, so "
                                   "ranks see a folder at its own path: --data-dir={}",
                                   printable(text), printable(mount.source)));
    }
    if (mount.read_only) {
      parts.notices.push_back(fmt::format(
          "--data-dir={}: :ro has no effect; the hosts' file permissions apply", printable(text)));
    }
    parts.mounts.push_back({mount.source, mount.target, mount.read_only});
  }
  return render_gang_plan(job, site, templates, std::move(parts));
}

std::string SshBackend::stock(const Plan& plan, const JobFolder& staged,
                              const SubmitSink& tell) const {
  const auto& job = plan.job;
  if (job.runs_bundled_trainer()) {
    pack_trainer(staged, read_gang_plan(plan.documents.front().text).command.front());
  }
  if (job.sync_mode.empty()) {
    return "";
  }
  if (job.sync_mode != k_sync_git) {
    return pack_code(staged, job.sync_source.empty() ? "." : job.sync_source, tell);
  }
  const auto brought = SupervisedBackend::stock(plan, staged, tell);
  const auto packed = pack_code(staged, staged.path() + "/" + k_code, tell);
  remove_tree_at(staged.fd(), k_code);
  return fmt::format("{}: {}", brought, packed);
}

std::vector<CheckResult> SshBackend::check() {
  std::vector<CheckResult> found;
  const auto ssh = find_program("ssh");
  using Level = CheckResult::Level;
  found.push_back(ssh.empty() ? CheckResult{Level::error, "ssh", "not in PATH: install it"}
                              : CheckResult{Level::ok, "ssh", ssh});
  found.push_back(check_state());
  found.push_back(check_trainer());
  const auto named = hosts();
  if (named.empty()) {
    found.push_back({Level::warning, "Hosts", "none listed (--hosts, --hostfile)"});
    return found;
  }
  for (const auto& host : survey_hosts(named, access_.get("interface"), true)) {
    found.push_back({host.lack.empty() ? Level::ok : Level::error, host.name,
                     host.lack.empty() ? host_text(host) : host.lack});
    for (const auto& fault : host.gpu_faults) {
      found.push_back({Level::warning, host.name, fault});
    }
  }
  return found;
}

std::vector<NodeStatus> SshBackend::nodes() {
  const auto named = hosts();
  if (named.empty()) {
    throw UsageError("no hosts: give --hosts=h1,h2,h3, --hostfile=FILE or a profile");
  }
  std::vector<NodeStatus> nodes;
  for (const auto& host : survey_hosts(named, access_.get("interface"))) {
    NodeStatus node;
    node.name = host.name;
    node.address = host.address;
    node.status = host.lack.empty() ? "Ready" : "NotReady";
    node.gpus = host.gpus;
    node.gpus_requested = host.gpus - host.gpus_free;
    node.cpus = host.cpus;
    node.cpus_used = host.cpus_used;
    node.memory = host.memory;
    node.memory_used = host.memory - host.memory_free;
    node.unseen = host.lack.empty() ? "" : fmt::format("{}: {}", host.name, host.lack);
    nodes.push_back(std::move(node));
  }
  // The first says what could not be seen.
  const auto lost = std::find_if(nodes.begin(), nodes.end(),
                                 [](const NodeStatus& node) { return !node.unseen.empty(); });
  if (lost != nodes.end()) {
    nodes.front().unseen = lost->unseen;
  }
  return nodes;
}

std::vector<InstanceUsage> SshBackend::usage(const JobRef& job) {
  const auto now = status(job);
  const auto folder = store().open(job);
  return survey_ranks(folder ? folder->fd() : -1, now.uid, now.instances);
}

std::optional<int>
SshBackend::forward_tensorboard(const JobRef& job, int port,
                                const std::function<void(const std::string& url)>& opened) {
  const auto now = status(job);
  if (now.tensorboard.empty()) {
    throw UsageError(fmt::format("job {} has no TensorBoard: submit it with --tensorboard",
                                 printable(job.name)));
  }
  const auto board = running_instance(job, instance_name(k_tensorboard, 0));
  return forward_port(board.node, port, now.tensorboard.substr(now.tensorboard.rfind(':') + 1),
                      opened);
}

/// Removes the job from all hosts where its ranks were, or may have been.
void SshBackend::remove_far(const GangPlan& plan, const std::string& uid) const {
  std::set<std::string> names;
  for (const auto& rank : plan.ranks) {
    names.insert(rank.host);
  }
  for (const auto& host : plan.hosts) {
    if (plan.max_workers > 0 || plan.min_workers > 0) {
      names.insert(host.name);
    }
  }
  std::string script;
  for (const auto* part : {"ssh/facts.sh", "ssh/clean.sh"}) {
    script += builtin_template(part).text;
  }
  const std::vector<std::string> hosts(names.begin(), names.end());
  const auto answers = ask_hosts(hosts, script, {uid});
  std::string left;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto& answer = answers[i];
    const auto why = !answer.failure.empty() ? answer.failure
                     : answer.lines.empty()  ? ""
                                             : answer.lines.front();
    if (!why.empty()) {
      left += fmt::format("\n  {}  {}", hosts[i], why);
    }
  }
  if (!left.empty()) {
    throw EngineError(fmt::format("the job is deleted, but these hosts still have files or "
                                  "processes of it (~/.local/state/dtrain/hosts/{}):{}",
                                  uid, left));
  }
}

int SshBackend::exec(const JobRef& job, const std::string& instance,
                     const std::vector<std::string>& command) {
  const auto host = running_instance(job, instance).node;
  std::string script;
  for (const auto* part : {"ssh/variables.sh", "ssh/exec.sh"}) {
    script += builtin_template(part).text;
  }
  std::vector<std::string> arguments{status(job).uid, instance};
  arguments.insert(arguments.end(), command.begin(), command.end());
  auto words = ssh_command(host, login_line(script, arguments));
  if (isatty(STDIN_FILENO) != 0) {
    std::replace(words.begin(), words.end(), std::string("-T"), std::string("-t"));
  }
  return run_in_foreground(words);
}

/// Over an ssh of its own, as exec: a job's files on a host stay there until it is deleted.
void SshBackend::read_files(const JobRef& job, const std::string& instance, const std::string& path,
                            const ByteSink& sink) {
  const auto gang = gang_plan(job);
  const auto now = status(job);
  const auto is_it = [&](const InstanceStatus& each) { return each.name == instance; };
  const auto at = std::find_if(now.instances.begin(), now.instances.end(), is_it);
  const auto host = at == now.instances.end() ? "" : at->node;
  const auto of_plan = std::find_if(gang.hosts.begin(), gang.hosts.end(),
                                    [&](const HostSlots& each) { return each.name == host; });
  if (of_plan == gang.hosts.end()) {
    throw EngineError(fmt::format("{} of job {}/{} has not been placed on a host yet",
                                  printable(instance), job.namespace_name, job.name));
  }
  const std::vector<std::string> words{now.uid, fmt::format("{}", of_plan - gang.hosts.begin()),
                                       gang.working_dir, path};
  const auto script = std::string(builtin_template("ssh/files.sh").text) + pack_script();
  const auto where = fmt::format("{}/{} on {}", job.name, instance, host);
  const auto result =
      read_packed({.argv = ssh_command(host, login_line(script, words))}, where, sink);
  if (!result.ending.good()) {
    const auto why = explain_loss(host, result.errors);
    throw EngineError(fmt::format("{}: {}", where, why.empty() ? "the copy was interrupted" : why));
  }
}

} // namespace dtrain::ssh
