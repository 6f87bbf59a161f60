#include "backends/slurm/slurm_backend.h"

#include "backends/batch/records_here.h"
#include "backends/slurm/cluster.h"
#include "backends/slurm/find_here.h"
#include "backends/slurm/nodes.h"
#include "backends/slurm/queue.h"
#include "backends/slurm/refused_options.h"
#include "backends/slurm/script.h"
#include "backends/slurm/system.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <utility>

namespace dtrain::slurm {

SlurmBackend::SlurmBackend(std::string login_host)
    : BatchBackend(batch::Login(queue_system(), std::move(login_host))) {}

std::string SlurmBackend::render_script(const JobSpec& job, const Templates& templates,
                                        const batch::LoginFacts& login) const {
  return slurm::render_script(job, templates, login);
}

batch::QueueOptions SlurmBackend::queue_options(const JobSpec& job) const {
  return slurm::queue_options(job);
}

std::string SlurmBackend::cluster_here() const { return slurm::cluster_here(); }

std::string SlurmBackend::refused_options(const std::string& script, std::string_view error) const {
  return slurm::refused_options(script, error);
}

/// A script that asks squeue. Its last argument is engine_script("accounting"), for jobs that
/// squeue has forgotten, so that sh parses it only if it is needed.
std::string SlurmBackend::asking_script(std::string_view name) const {
  return engine_script("cluster") + engine_script("queue") + batch_script("read_records") +
         engine_script(name);
}

std::string SlurmBackend::ask_job(const JobRef& job) const {
  const std::string folder = batch::job_folder(queue_system(), job);
  if (login().is_here()) {
    if (auto known = find_here(login(), state_folder() / folder)) {
      return *known;
    }
  }
  return login().run(asking_script("find"), {folder, k_queue_format, k_account_fields,
                                             fmt::format("{}/{}", job.namespace_name, job.name),
                                             engine_script("accounting")});
}

std::string SlurmBackend::ask_all() const {
  return login().run(asking_script("list"),
                     {k_queue_format, k_account_fields, engine_script("accounting")});
}

std::vector<batch::QueuedJob> SlurmBackend::read_jobs(std::string_view said) const {
  return read_queue(said);
}

std::vector<CheckResult> SlurmBackend::check() {
  std::vector<CheckResult> results;
  const auto add = [&](std::string what, const std::string& script) {
    try {
      std::string found = login().run(script);
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
      R"sh(f=$XDG_STATE_HOME/dtrain/slurm
mkdir -p "$f" && echo "$f (the nodes must share it)")sh");
  return results;
}

/// sbatch's own opinion.
std::vector<Plan::Document> SlurmBackend::try_plan(const Plan& plan) {
  login().run("sbatch --test-only", {}, plan.documents.front().text);
  return plan.documents;
}

std::vector<NodeStatus> SlurmBackend::nodes() {
  return read_nodes(login().run(fmt::format("sinfo --noheader --Node --Format={}", k_node_format)));
}

} // namespace dtrain::slurm
