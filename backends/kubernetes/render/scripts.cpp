#include "backends/kubernetes/render/scripts.h"

#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/render/job_data.h"
#include "backends/kubernetes/render/render.h"
#include "backends/kubernetes/render/template_data.h"
#include "backends/kubernetes/render/volumes.h"
#include "backends/support/code/code.h"
#include "submit/bucket.h"
#include "submit/start_command.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"
#include "submit/text/base64.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_trainer_program = "dtrain-trainer";

/// An address may take so long to be seen: DNS remembers for 5 s that a name was not there.
constexpr int k_seconds_to_be_seen = 15;

/// Variables that the script derives from the Pod, not from the job.
const std::set<std::string, std::less<>> k_own_variables = {
    "RANK",           "NODE_RANK",        "GROUP_RANK",          "ROLE_RANK",
    "TF_CONFIG",      "PET_NODE_RANK",    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "DTRAIN_JOB_UID", "DTRAIN_JOB_TOKEN", "DTRAIN_RESTART_COUNT"};

std::vector<std::string> program_of(const JobSpec& job) {
  std::vector<std::string> program = start_command(job);
  if (job.runs_bundled_trainer()) {
    program.insert(program.begin(), k_trainer_program);
  }
  return program;
}

std::string worker_script(const JobSpec& job, const Templates& templates) {
  return render_document(templates, "worker.sh",
                         {{"launcher_host", gang_of(job).ranks.at(0).host},
                          {"user_environment", user_environment(job)}});
}

/// For workers only: other hosts are reached as usual.
std::string ssh_config(const JobSpec& job) {
  return fmt::format("Host {}-*\n"
                     "  Port 2222\n"
                     "  IdentityFile /etc/dtrain-ssh/key\n"
                     "  IdentitiesOnly yes\n"
                     "  UserKnownHostsFile /etc/dtrain-ssh/known-hosts\n"
                     "  GlobalKnownHostsFile /dev/null\n"
                     "  StrictHostKeyChecking yes\n"
                     "  BatchMode yes\n"
                     "  LogLevel ERROR\n"
                     "  ServerAliveInterval 15\n",
                     role_job_name(job.name, k_worker_role));
}

/// Number of ranks in the Jobs before this group.
int ranks_before(const GangPlace& gang, const RoleGroup& group) {
  const auto first = std::find_if(gang.ranks.begin(), gang.ranks.end(), [&](const auto& rank) {
    return rank.role == group.roles[0].name;
  });
  return static_cast<int>(first - gang.ranks.begin());
}

/// --role-sequence's neighbours of a role: an instance starts when the role before it has.
struct Neighbours {
  std::string before; ///< Empty: none.
  std::string after;  ///< Empty: none.
};

Neighbours neighbours(const JobSpec& job, const GangPlace& gang, const std::string& role) {
  Neighbours found;
  std::string last;
  for (const std::string& name : role_start_order(job)) {
    if (std::none_of(gang.ranks.begin(), gang.ranks.end(),
                     [&](const auto& rank) { return rank.role == name; })) {
      continue; // Named, but the job has none.
    }
    if (name == role) {
      found.before = last;
    } else if (last == role) {
      found.after = name;
    }
    last = name;
  }
  return found;
}

std::vector<std::string> hosts_of(const GangPlace& gang, const std::string& role) {
  std::vector<std::string> hosts;
  for (const auto& rank : gang.ranks) {
    if (rank.role == role) {
      hosts.push_back(rank.host);
    }
  }
  return hosts;
}

} // namespace

GangPlace gang_of(const JobSpec& job) {
  GangPlace gang;
  gang.job_name = job.name;
  gang.namespace_name = job.namespace_name;
  gang.hostfile_path = k_hostfile_path;
  gang.max_restarts = job.max_restarts;
  gang.master_port = k_master_port;
  const bool launched = has_launcher(job);
  for (const RoleGroup& group : role_groups(job)) {
    const std::string owner = pod_owner_name(job, group.name);
    int place = 0;
    for (const PodRole& role : group.roles) {
      for (int index = 0; index < role.replicas; ++index, ++place) {
        std::string host = fmt::format("{}-{}.{}", owner, place, job.name);
        if (!role.runs_command) {
          gang.launcher_hosts.push_back(std::move(host));
          continue;
        }
        gang.ranks.push_back({.role = role.name,
                              .index = index,
                              .host = std::move(host),
                              .port = role.port == 0 ? k_tf_port : role.port});
      }
    }
  }
  gang.torchrun_nproc = job.nproc_per_node;
  gang.launcher_slots = launched ? slots_per_worker(job) : 0;
  gang.master_addr = launched ? gang.launcher_hosts.at(0) : gang.ranks.at(0).host;
  return gang;
}

std::string start_script(const JobSpec& job, const RoleGroup& group, const Templates& templates) {
  GangPlace gang = gang_of(job);
  const bool in_order = !job.role_sequence.empty();
  json data;
  data["roles"] = json::array();
  const int before = ranks_before(gang, group);
  int first = before;
  for (const PodRole& role : group.roles) {
    json own = {{"first", first}, {"end", first + role.replicas}, {"ranked", role.ranked}};
    own["apart_from_rank_0"] = in_order && role.name != gang.ranks.at(0).role;
    const Neighbours next = neighbours(job, gang, role.name);
    own["ordered"] = section(
        in_order, {{"after", next.before.empty() ? "no" : "yes"},
                   {"later", fmt::format("{}", fmt::join(hosts_of(gang, next.after), " "))}});
    own["torchrun"] = role.ranked && !gang.torchrun_nproc.empty();
    own["environment"] = json::array();
    for (const auto& [name, value] : rank_env(gang, first)) {
      if (!k_own_variables.contains(name)) {
        own["environment"].push_back({{"name", name}, {"value", value}});
      }
    }
    // The TF_CONFIGs of a role differ in the task's index alone.
    std::string config = tf_config(gang, first);
    constexpr std::string_view k_index = "\"index\":0";
    std::size_t after = config.rfind(k_index) + k_index.size();
    own["tf_config"] = section(role.name != k_launcher, {{"head", config.substr(0, after - 1)},
                                                         {"tail", config.substr(after)}});
    data["roles"].push_back(std::move(own));
    first += role.replicas;
  }

  data["user_environment"] = user_environment(job);
  data["has_launcher"] = has_launcher(job);
  data["in_order"] = section(in_order, {{"seconds_to_be_seen", k_seconds_to_be_seen}});
  data["at_once"] = !in_order && !has_launcher(job);
  data["watched"] = json::array(); // The ranks, by roles that have a Job without any.
  for (auto rank = gang.ranks.begin(); rank != gang.ranks.begin() + before; ++rank) {
    if (is_ranked_role(rank->role)) {
      data["watched"].push_back({{"host", rank->host}});
    }
  }
  data["before"] = before;
  data["has_watched"] = !group.roles[0].ranked && !has_launcher(job);
  data["command"] = json::array();
  for (const std::string& word : program_of(job)) {
    data["command"].push_back({{"word", word}});
  }
  return render_document(templates, "start.sh", data);
}

std::string sequence_script(const JobSpec& job, const RoleGroup& group,
                            const Templates& templates) {
  const GangPlace gang = gang_of(job);
  int first = ranks_before(gang, group);
  json data = {{"before", first}, {"restarts_alone", !has_jobset(job)}, {"roles", json::array()}};
  for (const PodRole& role : group.roles) {
    json own = {{"first", first}, {"end", first + role.replicas}, {"earlier", json::array()}};
    for (std::string& host : hosts_of(gang, neighbours(job, gang, role.name).before)) {
      own["earlier"].push_back({{"host", std::move(host)}});
    }
    data["roles"].push_back(std::move(own));
    first += role.replicas;
  }
  return render_document(templates, "sequence.sh", data);
}

json config_data(const JobSpec& job, const Templates& templates) {
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"job", write_job_yaml(job)},
               {"hostfile", hostfile_text(gang_of(job))},
               {"texts", json::array()},
               {"binaries", json::array()},
               {"launcher", has_launcher(job)}};
  const auto add = [&](const std::string& key, const std::string& script) {
    if (is_utf8(script)) {
      data["texts"].push_back({{"key", key}, {"text", script}});
    } else {
      data["binaries"].push_back({{"key", key}, {"base64", base64_encode(script)}});
    }
  };
  for (const RoleGroup& group : role_groups(job)) {
    if (group.roles[0].runs_command) { // Others run worker.sh.
      add(script_name(group), start_script(job, group, templates));
    }
    if (!job.role_sequence.empty()) {
      add(sequence_script_name(group), sequence_script(job, group, templates));
    }
  }
  if (job.sync_mode == k_sync_git) {
    const auto [url, ref] = split_ref(job.sync_source);
    add("code.sh", render_document(templates, "code.sh",
                                   {{"folder", code_folder(job)},
                                    {"url", url},
                                    {"ref", ref},
                                    {"name", repository_name(url)}}));
  } else if (job.sync_mode == k_sync_folder) {
    add("code.sh", render_document(templates, "unpack.sh", {{"folder", code_folder(job)}}));
  }
  if (!buckets_of(job).empty()) {
    add("data.sh", render_document(templates, "data.sh", json::object()));
  }
  if (has_launcher(job)) {
    add("worker.sh", worker_script(job, templates));
    data["launcher_script"] =
        render_document(templates, "launcher.sh", {{"max_restarts", job.max_restarts}});
    data["ssh_config"] = ssh_config(job);
    data["deepspeed"] = builtin_template("launchers/deepspeed.sh").text;
    data["discover_hosts"] = builtin_template("launchers/discover_hosts.sh").text;
  }
  // Needed to change the job later, from any machine.
  for (const auto& [name, own] : templates.own) {
    if (own.text != builtin_template(name).text) {
      add(std::string(k_template_key) + name.substr(name.find('/') + 1), own.text);
    }
  }
  data["has_binaries"] = !data["binaries"].empty();
  return data;
}

} // namespace dtrain::kubernetes
