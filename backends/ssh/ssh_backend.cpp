#include "backends/ssh/ssh_backend.h"

#include "backends/ssh/cargo.h"
#include "backends/ssh/host_list.h"
#include "backends/ssh/link.h"
#include "backends/ssh/ssh_channel.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/programs.h"
#include "backends/supervised/supervise.h"
#include "backends/support/os/files.h"
#include "backends/support/os/foreground.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace dtrain::ssh {

namespace {

constexpr const char* k_template = "ssh/job.yaml";
constexpr const char* k_code = "code"; ///< Of the job's folder on a host (host.sh).

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw UsageError(fmt::format("--hostfile={}: cannot be read: {}", printable(path),
                                 errno_text(errno != 0 ? errno : EISDIR)));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

int supervise_hosts(const std::vector<std::string>& args) {
  return supervise_main(args, [](const SupervisedJob& job) -> std::unique_ptr<Channel> {
    return std::make_unique<SshChannel>(job.uid, job.folder);
  });
}

/// Empty where none are named.
std::vector<HostSlots> SshBackend::hosts() const {
  const auto list = access_.get("hosts");
  const auto file = access_.get("hostfile");
  if (!list.empty() && !file.empty()) {
    throw UsageError("--hosts and --hostfile: give one of them");
  }
  return file.empty() ? parse_hosts(list) : parse_hostfile(read_text(file), file);
}

Surroundings SshBackend::survey(const JobSpec& job) const {
  auto here = SupervisedBackend::survey(job);
  here.hosts = hosts();
  here.interface = access_.get("interface");
  if (here.hosts.empty()) {
    throw UsageError("no hosts are named: --hosts=h1,h2,h3, --hostfile=FILE or a profile");
  }
  return here;
}

/// A path that is not from / counts from where `submit` was called.
std::vector<std::string> SshBackend::settle(JobSpec& job) {
  if (!job.working_dir.empty() && job.sync_mode.empty()) { // Else it counts from the code.
    const auto whole = std::filesystem::absolute(job.working_dir).lexically_normal();
    job.working_dir = (whole.has_filename() ? whole : whole.parent_path()).string();
  }
  return {};
}

Plan SshBackend::render(const JobSpec& job, const Templates& templates,
                        const Surroundings& here) const {
  if (const auto* type = find_job_type(job.type); type != nullptr && type->has_launcher) {
    throw UsageError(fmt::format("the ssh backend does not start {}s, which have a launcher: the "
                                 "kubernetes and local backends do",
                                 job.type));
  }
  GangParts parts;
  parts.template_name = k_template;
  parts.code_dir = k_code;
  parts.ranks = planned_ranks(job);
  const auto placed = place_ranks(here.hosts, static_cast<int>(parts.ranks.size()));
  for (std::size_t i = 0; i < placed.size(); ++i) {
    parts.ranks[i].host = placed[i];
  }
  return render_gang_plan(job, here, templates, std::move(parts));
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
  found.push_back(named.empty()
                      ? CheckResult{Level::warning, "Hosts", "none named (--hosts, --hostfile)"}
                      : CheckResult{Level::ok, "Hosts", fmt::format("{} named", named.size())});
  return found;
}

/// Where those that run would stand would no longer be side by side.
void SshBackend::scale(const JobRef& /*job*/, int /*workers*/) { refuse("scale jobs"); }

int SshBackend::exec(const JobRef& job, const std::string& instance,
                     const std::vector<std::string>& command) {
  const auto host = running_instance(job, instance).node;
  auto line = "exec sh -c " + quote_sh(std::string(builtin_template("ssh/exec.sh").text)) + " sh " +
              quote_sh(status(job).uid) + " " + quote_sh(instance);
  for (const auto& word : command) {
    line += " " + quote_sh(word);
  }
  auto words = ssh_command(host, "", line);
  if (isatty(STDIN_FILENO) != 0) {
    std::replace(words.begin(), words.end(), std::string("-T"), std::string("-t"));
  }
  return run_in_foreground(words);
}

} // namespace dtrain::ssh
