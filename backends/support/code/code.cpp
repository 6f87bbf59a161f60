#include "backends/support/code/code.h"

#include "backends/support/code/code_store.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"
#include "submit/options/environment.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace dtrain {

std::string git_token(const JobSpec& job) {
  if (job.sync_token_file.empty()) {
    const char* token = environment::k_git_token.value();
    return token == nullptr ? "" : token;
  }
  struct stat info {};
  constexpr mode_t k_others = 077;
  if (stat(job.sync_token_file.c_str(), &info) == 0 && (info.st_mode & k_others) != 0) {
    throw UsageError(fmt::format("--sync-token-file={0}: others can read it: run chmod 600 {0}",
                                 printable(job.sync_token_file)));
  }
  std::ifstream file(job.sync_token_file);
  std::string token;
  if (!std::getline(file, token) || token.empty()) {
    throw UsageError(fmt::format("--sync-token-file={}: is empty", printable(job.sync_token_file)));
  }
  return token;
}

std::pair<std::string, std::string> split_ref(const std::string& source) {
  const auto at = source.rfind('@');
  const auto slash = source.find_last_of("/:", source.size());
  const bool is_ref =
      at != std::string::npos && at > 0 && source.find("://") != at &&
      (slash == std::string::npos || at > slash ||
       (source.find("://") != std::string::npos && source.find('/', source.find("://") + 3) < at));
  return is_ref ? std::pair(source.substr(0, at), source.substr(at + 1))
                : std::pair(source, std::string("HEAD"));
}

std::string repository_name(const std::string& url) {
  std::string path = url;
  while (path.ends_with('/')) {
    path.pop_back();
  }
  if (path.ends_with(".git")) {
    path.resize(path.size() - std::string_view(".git").size());
  }
  return path.substr(path.find_last_of("/:") + 1);
}

namespace {

namespace fs = std::filesystem;

constexpr const char* k_user = "DTRAIN_GIT_USER";
/// Reads the credentials from the environment, so that no argument contains them.
constexpr const char* k_helper = "credential.helper=!f() { echo \"username=$DTRAIN_GIT_USER\"; "
                                 "echo \"password=$DTRAIN_GIT_TOKEN\"; }; f";

/// Unless the user says otherwise. A server that is silent for a minute is considered dead.
constexpr std::array k_git_defaults = {
    std::pair("GIT_HTTP_LOW_SPEED_LIMIT", "1"), std::pair("GIT_HTTP_LOW_SPEED_TIME", "60"),
    std::pair("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=30")};

/// The line of what git wrote that says most: its first "fatal:", but for the one that every
/// transport's failure ends with, whose reason comes before it.
std::string reason_of(const std::string& text) {
  constexpr std::string_view k_fatal = "fatal: ";
  const auto line_at = [&](std::size_t begin) {
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const auto fatal = text.starts_with(k_fatal) ? 0 : text.find(fmt::format("\n{}", k_fatal));
  if (fatal == std::string::npos) {
    const auto end = text.rfind('\n');
    return end == std::string::npos ? text : text.substr(end + 1);
  }
  const auto line = line_at(fatal == 0 ? 0 : fatal + 1).substr(k_fatal.size());
  return line.starts_with("Could not read from remote") && fatal != 0 ? line_at(0) : line;
}

/// Runs git; why it failed where it did, else empty.
std::string run_git(const std::string& folder, std::vector<std::string> args,
                    const std::string& user, const std::string& token) {
  args.insert(args.begin(), {"git", "-c", "advice.detachedHead=false"});
  if (!token.empty()) { // The user's own helpers, which may keep what they hear, are left out.
    args.insert(args.begin() + 1, {"-c", "credential.helper=", "-c", k_helper});
  }
  Command command = {.argv = std::move(args),
                     .env = {{"GIT_TERMINAL_PROMPT", "0"},
                             {"LC_ALL", "C"},
                             {k_user, user.empty() ? "git" : user},
                             {environment::k_git_token.name, token}},
                     .folder = folder};
  for (const auto& [name, value] : k_git_defaults) {
    if (std::getenv(name) == nullptr) {
      command.env.emplace_back(name, value);
    }
  }
  CommandResult result;
  try {
    result = run_command(command);
  } catch (const EngineError& error) {
    return fmt::format("{}; install it", error.what());
  }
  if (result.ending.good()) {
    return "";
  }
  std::string text = result.errors;
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  std::string reason = reason_of(text);
  for (std::size_t at = token.empty() ? std::string::npos : reason.find(token);
       at != std::string::npos; at = reason.find(token)) {
    reason.replace(at, token.size(), "***");
  }
  return reason.empty() ? "git failed" : reason;
}

std::string bring_git(const JobSpec& job, const std::string& folder) {
  const auto [url, ref] = split_ref(job.sync_source);
  const auto token = git_token(job);
  for (const auto& args : {std::vector<std::string>{"init", "--quiet"},
                           {"fetch", "--quiet", "--depth=1", "--", url, ref},
                           {"checkout", "--quiet", "FETCH_HEAD"}}) {
    const auto error = run_git(folder, args, job.sync_user, token);
    if (!error.empty()) {
      const bool is_access = error.find("Authentication failed") != std::string::npos ||
                             error.find("could not read Username") != std::string::npos;
      const char* hint = !is_access      ? ""
                         : token.empty() ? "; a private repository needs a token in "
                                           "DTRAIN_GIT_TOKEN, or --sync-token-file"
                                         : "; check the token and --sync-user";
      throw UsageError(fmt::format("--sync-source={}: {}{}", printable(job.sync_source),
                                   printable(error), hint));
    }
  }
  const fs::path code = fs::path(folder) / "code";
  std::error_code error; // A repository may have a file of that name.
  fs::create_directory(code, error);
  fs::create_symlink("..", code / repository_name(url), error);
  return fmt::format("{} at {}", printable(url), printable(ref));
}

std::string bring_copy(const JobSpec& job, const std::string& folder, const SubmitSink& tell) {
  return copied_text(bring_folder(job.sync_source.empty() ? "." : job.sync_source, folder,
                                  as_step(SubmitStep::upload, tell)));
}

} // namespace

std::string bring_code(const JobSpec& job, const std::string& folder, const SubmitSink& tell) {
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    throw Error(fmt::format("cannot make {}: {}", printable(folder), error.message()));
  }
  if (tell) {
    tell({.step = SubmitStep::upload});
  }
  return job.sync_mode == k_sync_git ? bring_git(job, folder) : bring_copy(job, folder, tell);
}

} // namespace dtrain
