#include "submit/job_spec.h"

#include "submit/duration.h"
#include "submit/errors.h"
#include "submit/job_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include <sys/random.h>

namespace dtrain {
namespace {

constexpr std::size_t k_max_label = 63;      ///< RFC 1123.
constexpr std::size_t k_max_subdomain = 253; ///< RFC 1123.
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

void check_dns_label(std::string_view flag, const std::string& text) {
  if (is_dns_label(text)) {
    return;
  }
  const std::string better = as_dns_label(text);
  throw UsageError(fmt::format("{}={}: must be a DNS label, at most {} of a-z, 0-9 and '-' with a "
                               "letter or digit at both ends{}",
                               flag, shortened(text), k_max_label,
                               better.empty() ? "" : fmt::format("; try {}", better)));
}

void check_priority(const std::string& text) {
  std::string_view rest = text;
  bool good = text.size() <= k_max_subdomain;
  while (good && !rest.empty()) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    good = is_dns_label(rest.substr(0, end)) && end + 1 != rest.size();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!good) {
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
      throw Error("cannot make up a name: no random numbers from the kernel; give one by --name");
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
    throw UsageError(
        fmt::format("{}: holds a NUL byte, which no argument can: {}", what, shortened(word)));
  }
  if (word.size() > k_max_word) {
    throw UsageError(fmt::format("{}: is {} bytes long, and Linux takes {}; put it into a file",
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

/// Each key once, where it first stood, with its last value.
std::vector<std::string> checked_env(const std::vector<std::string>& entries) {
  std::vector<std::string> env;
  std::map<std::string, std::size_t, std::less<>> places;
  for (const std::string& entry : entries) {
    check_word("--env", entry);
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      throw UsageError(
          fmt::format("--env={0}: must be KEY=VALUE; {0}= is an empty value", shortened(entry)));
    }
    const std::string key = entry.substr(0, equals);
    if (!is_env_key(key)) {
      throw UsageError(fmt::format("--env={}: '{}' is no name of an environment variable: letters, "
                                   "digits and '_', not a digit first",
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

void check_numbers(const JobSpec& job) {
  for (const JobField& field : job_fields()) {
    const auto* member = std::get_if<int JobSpec::*>(&field.member);
    if (member == nullptr) {
      continue;
    }
    const int value = job.*(*member);
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

} // namespace

std::string instance_name(std::string_view role, int index) {
  return fmt::format("{}-{}", role, index);
}

JobSpec resolve(JobSpec job) {
  const JobSpec defaults;
  if (job.name.empty()) {
    job.name = random_name();
  }
  if (job.namespace_name.empty()) {
    job.namespace_name = defaults.namespace_name;
  }
  if (job.backend.empty()) {
    job.backend = defaults.backend;
  }
  check_dns_label("--name", job.name);
  check_dns_label("--namespace", job.namespace_name);
  check_priority(job.priority);
  check_numbers(job);
  if (job.require_gpus && job.gpus == 0) {
    throw UsageError("--require-gpus: needs --gpus=N with the number for each worker");
  }
  check_word("--working-dir", job.working_dir);
  for (std::size_t i = 0; i < job.command.size(); ++i) {
    check_word(fmt::format("word {} of the command", i + 1), job.command[i]);
  }
  if (!job.command.empty() && job.command[0].empty()) {
    throw UsageError("the command's first word, the program, is empty");
  }
  job.env = checked_env(job.env);
  return job;
}

} // namespace dtrain
