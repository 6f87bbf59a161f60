#include "backends/local/local_plan.h"

#include "backends/local/shares.h"
#include "backends/supervised/gang/devices.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/support/bucket/bucket_cache.h"
#include "submit/errors.h"
#include "submit/gpu_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace dtrain {

namespace {

constexpr const char* k_template = "local/job.yaml";

/// "SERVER:/PATH" for nfs://SERVER/PATH; empty if it is not a share.
std::string share_of(const std::string& source) {
  constexpr std::string_view k_scheme = "nfs://";
  if (!source.starts_with(k_scheme)) {
    return "";
  }
  std::string share = source.substr(k_scheme.size());
  share.insert(std::min(share.find('/'), share.size()), ":");
  return share;
}

/// The folder of this machine that shows what --data names. Throws UsageError where none does.
std::string folder_of(const std::string& text, const std::string& source, const GangSite& site) {
  if (const auto found = site.data_folders.find(source); found != site.data_folders.end()) {
    return found->second;
  }
  if (const auto share = share_of(source); !share.empty()) {
    throw UsageError(fmt::format("--data={}: {} is not mounted on this machine: mount it (mount -t "
                                 "nfs {} DIR), then dtrain data add NAME --path=DIR",
                                 printable(text), printable(share), printable(share)));
  }
  if (source.find("://") != std::string::npos) {
    throw UsageError(fmt::format("--data={}: the local backend cannot mount such a volume: copy "
                                 "the data to this machine, then dtrain data add NAME --path=DIR",
                                 printable(text)));
  }
  if (source.starts_with('/')) {
    throw UsageError(fmt::format("--data={}: for a folder of this machine use --data-dir={}",
                                 printable(text), printable(text)));
  }
  throw NotFound(
      fmt::format("--data={}: no data of that name (claims are for Kubernetes): 'dtrain data list' "
                  "lists the names, 'dtrain data add NAME --path=DIR' adds one",
                  printable(text)));
}

std::vector<Mount> mounts_of(const JobSpec& job, const GangSite& site) {
  std::vector<Mount> mounts;
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    mounts.push_back({folder_of(text, mount.source, site), mount.target,
                      mount.read_only || is_bucket(mount.source)});
  }
  for (const auto& [flag, texts] :
       {std::pair("--data-dir", &job.data_dirs), std::pair("--config-file", &job.config_files)}) {
    for (const std::string& text : *texts) {
      const MountText mount = parse_mount(flag, text);
      mounts.push_back({mount.source, mount.target, mount.read_only});
    }
  }
  return mounts;
}

/// Where to look for who has GPUs that are in use.
std::string see_whose(const MachineGpus& gpus) {
  return gpus.users.empty()
             ? "see dtrain list"
             : fmt::format("see dtrain list; {} {} some, too", fmt::join(gpus.users, ", "),
                           gpus.users.size() == 1 ? "has" : "have");
}

/// Gives every rank GPUs of its own, or none to all where there are too few. Returns how many of
/// them other jobs have too.
int assign_devices(const JobSpec& job, const MachineGpus& gpus, std::vector<GangRank>& ranks,
                   std::vector<std::string>& notices) {
  std::vector<int> wanted;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(wanted),
                 [](const GangRank& rank) { return rank.gpus; });
  const int sum = std::accumulate(wanted.begin(), wanted.end(), 0);
  if (sum == 0) {
    return 0;
  }
  const auto devices = assign_gpus(gpus.devices, wanted);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].devices = devices ? (*devices)[i] : "";
  }
  check_view(gpu_view(job), ranks);
  if (devices) {
    const auto free = static_cast<int>(gpus.devices.size() - gpus.in_use);
    if (sum > free && job.require_gpus) {
      throw EngineError(fmt::format("the job asks for {} GPU{} ({} per worker), and {} of them are "
                                    "in use by other jobs ({}): wait, ask for fewer, or drop "
                                    "--require-gpus to share them",
                                    sum, sum == 1 ? "" : "s", job.gpus, sum - free,
                                    see_whose(gpus)));
    }
    if (sum > free) {
      notices.push_back(fmt::format("{} of {} GPUs are shared with other jobs: {}", sum - free, sum,
                                    see_whose(gpus)));
    }
    return std::max(sum - free, 0);
  }
  const auto lack =
      fmt::format("the job asks for {} GPU{} ({} per worker), and this machine has {}", sum,
                  sum == 1 ? "" : "s", job.gpus, gpus.devices.size());
  if (job.require_gpus) {
    throw EngineError(lack + ": ask for fewer, or drop --require-gpus to run on the CPU");
  }
  notices.push_back(lack + ": running on the CPU (--require-gpus makes this an error)");
  return 0;
}

} // namespace

std::map<std::string, std::string> folders_here(const JobSpec& job) {
  std::map<std::string, std::string> folders;
  for (const std::string& text : job.data) {
    const auto source = parse_mount("--data", text).source;
    const auto share = share_of(source);
    const auto folder = is_bucket(source) ? bucket_folder(parse_bucket("--data", source))
                        : !share.empty()  ? find_share(share)
                                          : "";
    if (!folder.empty()) {
      folders[source] = folder;
    }
  }
  return folders;
}

Plan render_local_plan(const JobSpec& job, const GangSite& site, const MachineGpus& gpus,
                       const std::string& code_dir, const Templates& templates) {
  GangParts parts;
  parts.template_name = k_template;
  parts.code_dir = code_dir;
  parts.ranks = planned_ranks(job);
  parts.gpus_shared = assign_devices(job, gpus, parts.ranks, parts.notices);
  parts.mounts = mounts_of(job, site);
  return render_gang_plan(job, site, templates, std::move(parts));
}

} // namespace dtrain
