#include "submit/job_spec.h"

#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/gpu_view.h"
#include "submit/job_roles.h"
#include "submit/options/duration.h"
#include "submit/template/quote.h"
#include "submit/text/quantity.h"
#include "submit/text/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include <sys/random.h>

namespace dtrain {
namespace {

constexpr std::size_t k_max_label = 63;      ///< RFC 1123.
constexpr std::size_t k_max_subdomain = 253; ///< RFC 1123.
constexpr double k_least_log = 65536;        ///< Some of a log's blocks.
constexpr std::size_t k_max_word = 131'071;  ///< Linux: MAX_ARG_STRLEN less the final NUL.

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= k_max_label && is_letter_or_digit(text.front()) &&
         is_letter_or_digit(text.back()) && std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter_or_digit(c) || c == '-';
         });
}

/// The nearest DNS label to `text`; empty where nothing of it remains.
std::string as_dns_label(std::string_view text) {
  std::string label;
  for (const char c : text.substr(0, k_max_label)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    label += is_letter_or_digit(lower) ? lower : '-';
  }
  const auto first = std::find_if(label.begin(), label.end(), is_letter_or_digit);
  label.erase(label.begin(), first);
  while (!label.empty() && label.back() == '-') {
    label.pop_back();
  }
  return label;
}

std::string shortened(std::string_view text) {
  constexpr std::size_t k_shown = 80;
  return printable(text.substr(0, k_shown)) + (text.size() > k_shown ? "…" : "");
}

/// Labels with dots between them.
bool is_dns_subdomain(std::string_view text) {
  bool good = text.size() <= k_max_subdomain;
  while (good && !text.empty()) {
    const std::size_t end = std::min(text.find('.'), text.size());
    good = is_dns_label(text.substr(0, end)) && end + 1 != text.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return good;
}

void check_priority(const std::string& text) {
  if (!is_dns_subdomain(text)) {
    throw UsageError(fmt::format("--priority={}: must be the name of a priority class, DNS labels "
                                 "with dots between them",
                                 shortened(text)));
  }
}

/// dtrain-k3x9a: no vowels, so that no words appear, and no 0, 1, 3, l that read alike.
std::string random_name() {
  constexpr std::string_view alphabet = "bcdfghjkmnpqrstvwxz2456789";
  constexpr std::size_t k_length = 5;
  constexpr unsigned k_fair = 256 / alphabet.size() * alphabet.size(); // no letter more often
  std::string name = "dtrain-";
  const std::size_t whole = name.size() + k_length;
  while (name.size() < whole) {
    std::array<unsigned char, 2 * k_length> bytes{};
    if (getrandom(bytes.data(), bytes.size(), 0) < 0) {
      throw Error(
          "cannot choose a random name: the kernel gives no random numbers; add --name=NAME");
    }
    for (const unsigned char byte : bytes) {
      if (byte < k_fair && name.size() < whole) {
        name += alphabet[byte % alphabet.size()];
      }
    }
  }
  return name;
}

void check_word(std::string_view what, const std::string& word) {
  if (word.find('\0') != std::string::npos) {
    throw UsageError(fmt::format("{}: has a NUL byte, which an argument cannot hold: {}", what,
                                 shortened(word)));
  }
  if (word.size() > k_max_word) {
    throw UsageError(fmt::format("{}: is {} bytes long, and Linux allows {}; put it into a file",
                                 what, word.size(), k_max_word));
  }
}

bool is_env_key(std::string_view key) {
  const auto is_start = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  };
  return !key.empty() && is_start(key.front()) && std::all_of(key.begin(), key.end(), [&](char c) {
    return is_start(c) || (c >= '0' && c <= '9');
  });
}

/// Each key once, at its first place, with its last value.
std::vector<std::string> checked_env(const std::vector<std::string>& entries) {
  std::vector<std::string> env;
  std::map<std::string, std::size_t, std::less<>> places;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    check_word(fmt::format("--env={}", shortened(entry.substr(0, equals))), entry);
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("--env={0}: must be KEY=VALUE; write {0}= for an empty value",
                                   shortened(entry)));
    }
    const std::string key = entry.substr(0, equals);
    if (!is_env_key(key)) {
      throw UsageError(fmt::format(
          "--env={}: bad variable name '{}': use letters, digits and '_', no digit first",
          shortened(entry), shortened(key)));
    }
    const auto [place, is_new] = places.emplace(key, env.size());
    if (is_new) {
      env.push_back(entry);
    } else {
      env[place->second] = entry;
    }
  }
  return env;
}

/// Checks that the roles fit the type, and that options of a role are given only if the role
/// exists.
void check_roles(JobSpec& job) {
  const JobType* type = find_job_type(job.type);
  if (type == nullptr) {
    throw UsageError(fmt::format("'{}' is not a job type; use tfjob, pytorchjob, mpijob, "
                                 "horovodjob, etjob, deepspeedjob, rayjob or volcanojob",
                                 shortened(job.type)));
  }
  job.type = type->name;
  const bool tensorflow =
      !type->has_launcher && !type->has_master && !type->has_ray && !type->has_tasks;
  const auto only = [&](const char* flag, bool set, bool fits, const char* whose) {
    if (set && !fits) {
      throw UsageError(fmt::format("{}: is for {}, not for a {}", flag, whose,
                                   type->name.empty() ? "job without a type" : type->name));
    }
  };
  only("--ps", job.ps > 0, tensorflow, "a tfjob");
  only("--chief", job.chief, tensorflow, "a tfjob");
  only("--evaluator", job.evaluator, tensorflow, "a tfjob");
  only("--role-sequence", !job.role_sequence.empty(), tensorflow, "a tfjob");
  const JobSpec defaults;
  only("--task-images", !job.task_images.empty(), type->has_tasks, "a volcanojob");
  only("--task-name", job.task_name != defaults.task_name, type->has_tasks, "a volcanojob");
  only("--task-replicas", job.task_replicas != 1, type->has_tasks, "a volcanojob");
  if (type->has_tasks && (job.workers != 1 || job.min_workers > 0 || job.max_workers > 0)) {
    throw UsageError(
        "--workers: a volcanojob has tasks; use --task-images=IMAGE,… and --task-replicas=N");
  }
  if (!job.nproc_per_node.empty()) {
    only("--nproc-per-node", true, type->has_master, "a pytorchjob");
    const bool number = job.nproc_per_node.size() <= 4 && job.nproc_per_node[0] != '0' &&
                        std::all_of(job.nproc_per_node.begin(), job.nproc_per_node.end(),
                                    [](char c) { return c >= '0' && c <= '9'; });
    if (!number && job.nproc_per_node != "auto" && job.nproc_per_node != "gpu" &&
        job.nproc_per_node != "cpu") {
      throw UsageError(fmt::format("--nproc-per-node={}: must be a number, auto, gpu or cpu",
                                   shortened(job.nproc_per_node)));
    }
  }
  if (job.ps_gpus > 0 && job.ps == 0) {
    throw UsageError("--ps-gpus: the job has no parameter servers; add --ps=N");
  }
  if ((type->has_launcher || type->has_ray) && job.runs_bundled_trainer()) {
    throw UsageError(fmt::format("a {} needs a command for its {}: give it after --", type->name,
                                 type->has_ray ? "first worker" : "launcher"));
  }
  const bool too_few = job.min_workers > 0 && job.workers < job.min_workers;
  if (too_few || (job.max_workers > 0 && job.workers > job.max_workers)) {
    throw UsageError(fmt::format("--workers={}: must be at {}", job.workers,
                                 too_few ? fmt::format("least --min-workers={}", job.min_workers)
                                         : fmt::format("most --max-workers={}", job.max_workers)));
  }
  static_cast<void>(role_start_order(job));
}

void check_log_limit(const JobSpec& job) {
  if (!job.log_limit.empty() && quantity_of(job.log_limit).value_or(0) < k_least_log) {
    throw UsageError(
        fmt::format("--log-limit={}: must be at least 64Ki", shortened(job.log_limit)));
  }
}

void check_numbers(const JobSpec& job) {
  for (const JobField& field : job_fields()) {
    const auto* member = std::get_if<Member<int>>(&field.member);
    if (member == nullptr) {
      continue;
    }
    const int value = (*member)(job);
    const auto text = [&](std::int64_t number) {
      return field.duration ? format_duration(std::chrono::milliseconds(number))
                            : fmt::format("{}", number);
    };
    if (value < field.minimum || value > field.maximum) {
      throw UsageError(fmt::format("{}={}: must be between {} and {}", field.flags, text(value),
                                   text(field.minimum), text(field.maximum)));
    }
  }
}

void check_form(const JobField& field, const std::string& text) {
  const auto equals = text.find('=');
  std::string_view wrong;
  if (field.form == Form::quantity && !text.empty() && !is_quantity(text)) {
    wrong = "must be an amount such as 4, 500m or 16Gi";
  } else if (field.form == Form::pair && (equals == std::string::npos || equals == 0)) {
    wrong = "must be KEY=VALUE";
  } else if (field.form == Form::pair && !is_utf8(text)) {
    wrong = "must be UTF-8";
  }
  if (!wrong.empty()) {
    throw UsageError(fmt::format("{}={}: {}", field.long_flag(), shortened(text), wrong));
  }
}

void check_forms(const JobSpec& job) {
  for (const JobField& field : job_fields()) {
    if (const auto* text = std::get_if<Member<std::string>>(&field.member)) {
      check_form(field, (*text)(job));
    } else if (const auto* list = std::get_if<Member<std::vector<std::string>>>(&field.member)) {
      for (const std::string& each : (*list)(job)) {
        check_form(field, each);
      }
    }
  }
  for (const std::string& label : job.labels) {
    require_label("--label", label);
  }
}

/// Splits "A,B".
std::vector<std::string> split_names(const char* flag, const std::vector<std::string>& texts) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      names.push_back(text.substr(begin, end - begin));
      if (names.back().empty()) {
        throw UsageError(fmt::format("{}={}: an empty name", flag, printable(text)));
      }
      begin = end + 1;
    }
  }
  return names;
}

/// A volcanojob's tasks. Where no image is named, they are the three of Arena's.
void settle_tasks(JobSpec& job) {
  if (!find_job_type(job.type)->has_tasks) {
    return;
  }
  job.task_images = split_names("--task-images", job.task_images);
  if (job.task_images.empty() && !job.image.empty()) {
    job.task_images = {job.image};
  } else if (job.task_images.empty()) {
    job.task_images = {"ubuntu", "nginx", "busybox"};
  }
  require_dns_label("--task-name", job.task_name);
  const auto instances =
      static_cast<std::int64_t>(job.task_images.size()) * std::int64_t{job.task_replicas};
  if (instances > k_max_workers) {
    throw UsageError(
        fmt::format("--task-replicas={}: {} tasks make {} instances, and a job has at most {}",
                    job.task_replicas, job.task_images.size(), instances, k_max_workers));
  }
  if (job.runs_bundled_trainer()) {
    throw UsageError("a volcanojob runs each image's own program, or the command after --, which "
                     "cannot begin with a flag");
  }
}

} // namespace

void require_dns_label(std::string_view flag, const std::string& text) {
  if (is_dns_label(text)) {
    return;
  }
  const std::string better = as_dns_label(text);
  throw UsageError(fmt::format("{}={}: must be a DNS label, at most {} of a-z, 0-9 and '-' with a "
                               "letter or digit at both ends{}",
                               flag, shortened(text), k_max_label,
                               better.empty() ? "" : fmt::format("; try {}", better)));
}

void require_label(std::string_view flag, const std::string& text) {
  constexpr std::string_view k_inner = "-_.";
  const auto is_word = [&](std::string_view word) {
    const auto is_alnum = [](char c) { return is_letter_or_digit(c) || (c >= 'A' && c <= 'Z'); };
    return word.size() <= k_max_label && is_alnum(word.front()) && is_alnum(word.back()) &&
           std::all_of(word.begin(), word.end(), [&](char c) {
             return is_alnum(c) || k_inner.find(c) != std::string_view::npos;
           });
  };
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view key = std::string_view(text).substr(0, equals);
  const std::string_view value = std::string_view(text).substr(std::min(equals + 1, text.size()));
  const std::size_t slash = key.find('/');
  const std::string_view name = slash == std::string_view::npos ? key : key.substr(slash + 1);
  const bool has_good_prefix =
      slash == std::string_view::npos || (slash > 0 && is_dns_subdomain(key.substr(0, slash)));
  if (name.empty() || !is_word(name) || !has_good_prefix || (!value.empty() && !is_word(value))) {
    throw UsageError(fmt::format("{}={}: a label is KEY=VALUE, each at most {} letters, digits, "
                                 "'-', '_' and '.', with a letter or digit at both ends",
                                 flag, shortened(text), k_max_label));
  }
}

std::string instance_name(std::string_view role, int index) {
  return fmt::format("{}-{}", role, index);
}

MountText parse_mount(const std::string& flag, const std::string& text) {
  MountText mount;
  std::string rest = text;
  if (rest.ends_with(":ro")) {
    mount.read_only = true;
    rest.resize(rest.size() - 3);
  }
  const std::size_t colon = rest.rfind(":/"); // A source may be a URL.
  mount.source = rest.substr(0, colon);
  mount.target = colon == std::string::npos ? rest : rest.substr(colon + 1);
  while (mount.target.size() > 1 && mount.target.ends_with('/')) {
    mount.target.pop_back();
  }
  if (mount.source.empty() || !mount.target.starts_with('/') || mount.target == "/" ||
      mount.target.starts_with("//") || mount.target.find("/../") != std::string::npos ||
      mount.target.ends_with("/..")) {
    throw UsageError(fmt::format("{}={}: must be {}:/PATH; append :ro for read-only", flag,
                                 shortened(text), flag == "--data" ? "NAME" : "/HERE"));
  }
  check_word(flag, text);
  return mount;
}

/// Checks that data and files have different paths, and that the options about code fit together.
void check_code_and_data(const JobSpec& job) {
  std::map<std::string, std::string> targets;
  for (const auto& [flag, texts] :
       {std::pair("--data", &job.data), std::pair("--data-dir", &job.data_dirs),
        std::pair("--config-file", &job.config_files)}) {
    for (const std::string& text : *texts) {
      const auto [place, is_new] = targets.emplace(parse_mount(flag, text).target, text);
      if (!is_new) {
        throw UsageError(fmt::format("{}={}: {} already uses that path", flag, shortened(text),
                                     shortened(place->second)));
      }
    }
  }
  if (job.sync_mode.empty() && !job.sync_source.empty()) {
    throw UsageError("--sync-source: add --sync-mode=git or --sync-mode=local");
  }
  if (job.sync_mode == k_sync_git && job.sync_source.empty()) {
    throw UsageError("--sync-mode=git: add the repository: --sync-source=URL[@REF]");
  }
  if (job.sync_mode == k_sync_git && holds_password(job.sync_source)) {
    throw UsageError(
        "--sync-source: contains a password, which anyone can read on a command line: use "
        "--sync-user=NAME, and DTRAIN_GIT_TOKEN or --sync-token-file for the token");
  }
}

JobSpec resolve(JobSpec job) {
  const JobSpec defaults;
  if (job.name.empty()) {
    job.name = random_name();
  }
  if (job.namespace_name.empty()) {
    job.namespace_name = defaults.namespace_name;
  }
  require_dns_label("--name", job.name);
  require_dns_label("--namespace", job.namespace_name);
  check_priority(job.priority);
  check_numbers(job);
  check_roles(job);
  settle_tasks(job);
  check_forms(job);
  check_log_limit(job);
  check_code_and_data(job);
  if (job.require_gpus && job.gpus == 0) {
    throw UsageError("--require-gpus: add --gpus=N, the number of GPUs per worker");
  }
  if (job.check_gpus == "measure" && job.gpus == 0 && job.ps_gpus == 0) {
    throw UsageError("--check-gpus=measure: add --gpus=N, the number of GPUs per worker");
  }
  check_gpu_view(job);
  check_word("--working-dir", job.working_dir);
  for (std::size_t i = 0; i < job.command.size(); ++i) {
    check_word(fmt::format("word {} of the command", i + 1), job.command[i]);
  }
  if (!job.command.empty() && job.command[0].empty()) {
    throw UsageError("the command's first word, the program, is empty");
  }
  job.env = checked_env(job.env);
  job.node_list = split_names("--node-list", job.node_list);
  if (job.success_policy.empty() && (job.type == "tfjob" || job.type == "rayjob")) {
    job.success_policy = "ChiefWorker"; // Arena's names, and then the operator's; Ray's driver.
  }
  return job;
}

} // namespace dtrain
