#include "backends/batch/login.h"

#include "backends/support/os/files.h"
#include "backends/support/os/foreground.h"
#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

namespace dtrain::batch {
namespace {

constexpr int k_no_command = 127; ///< Exit code of sh: there is no such command.
constexpr int k_no_link = 255;    ///< Exit code of ssh: no connection.

/// state_folder() of the machine that it runs on, less its last name.
constexpr const char* k_state_home =
    R"sh(case ${XDG_STATE_HOME-} in
  /*) ;;
  *) XDG_STATE_HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.local/state ;;
esac
)sh";

/// The part that a person needs of "sbatch: error: Batch job submission failed: Invalid qos".
std::string cause_of(const QueueSystem& system, const std::string& errors) {
  std::string_view text = errors;
  for (const std::string_view noise : system.noise) {
    if (const auto at = text.find(noise); at != std::string_view::npos) {
      text.remove_prefix(at + noise.size());
      break;
    }
  }
  return printable(text.substr(0, text.find('\n')));
}

/// A folder of the user's own whose path is short enough for the name of a socket; empty: there is
/// none.
std::string socket_folder() {
  // Leaves room for ssh's hash, and its suffix of a new socket.
  constexpr std::size_t k_longest = 104 - 60;
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  std::vector<std::string> folders = {fmt::format("/tmp/dtrain-ssh-{}", geteuid())};
  if (runtime != nullptr && *runtime == '/') {
    folders.insert(folders.begin(), fmt::format("{}/dtrain", runtime));
  }
  for (const std::string& folder : folders) {
    try {
      if (folder.size() <= k_longest && open_private_folder(folder, true)) {
        return folder;
      }
    } catch (const Error&) { // Somebody else's, or it cannot be made.
    }
  }
  return "";
}

[[noreturn]] void throw_no_commands(const QueueSystem& system, const std::string& place,
                                    std::string_view why) {
  throw EngineError(fmt::format("{0}'s commands are not in PATH{1} ({2}): install them there, or "
                                "run them on another host: --login-host=HOST",
                                system.name, place, printable(why)));
}

} // namespace

Command Login::command(const std::string& script, const std::vector<std::string>& args,
                       std::string input) const {
  std::string settings = k_state_home;
  settings += "export";
  for (const auto& [name, value] : system_->environment) {
    settings += fmt::format(" {}={}", name, value);
  }
  std::vector<std::string> words{"sh", "-c", settings + "\n" + script, "dtrain"};
  words.insert(words.end(), args.begin(), args.end());
  Command command;
  command.input = std::move(input);
  if (host_.empty()) {
    command.argv = std::move(words);
    return command;
  }
  std::string line;
  for (const std::string& word : words) {
    line += (line.empty() ? "" : " ") + quote_sh(word);
  }
  command.argv = ssh_words();
  for (std::string word : {std::string("--"), host_, std::move(line)}) {
    command.argv.push_back(std::move(word));
  }
  return command;
}

std::vector<std::string> Login::ssh_words() const {
  if (!ssh_words_.empty()) {
    return ssh_words_;
  }
  ssh_words_ = {"ssh"};
  const auto add = [&](std::string option) {
    ssh_words_.emplace_back("-o");
    ssh_words_.push_back(std::move(option));
  };
  add("BatchMode=yes");
  add("ConnectTimeout=20");
  add("ServerAliveInterval=15");
  add("ServerAliveCountMax=4");
  // A connection that the user keeps, where it took a second factor, is used; no other is opened.
  Command check{.argv = {"ssh", "-O", "check", "--", host_}};
  check.limit = std::chrono::seconds(5);
  if (const std::string folder = socket_folder();
      !folder.empty() && !run_command(check).ending.good()) {
    add("ControlMaster=auto");
    add(fmt::format("ControlPath={}/%C", folder));
    add("ControlPersist=10");
  }
  return ssh_words_;
}

int Login::run_in_foreground(const std::string& script,
                             const std::vector<std::string>& args) const {
  auto argv = command(script, args).argv;
  if (!host_.empty() && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
    argv.insert(argv.begin() + 1, "-t"); // A terminal there, too.
  }
  return dtrain::run_in_foreground(argv);
}

std::string Login::run(const std::string& script, const std::vector<std::string>& args,
                       std::string input) const {
  CommandResult result = run_command(command(script, args, std::move(input)));
  if (!result.ending.good()) {
    refuse(result);
  }
  return std::move(result.out);
}

std::unique_ptr<Subprocess> Login::start(const Command& command) const {
  try {
    return std::make_unique<Subprocess>(command);
  } catch (const EngineError& error) {
    throw_no_commands(*system_, "", error.what());
  }
}

void Login::refuse(const CommandResult& result) const {
  if (result.ending.exit_code == k_no_command) {
    throw_no_commands(*system_, place(), result.errors.substr(0, result.errors.find('\n')));
  }
  if (!host_.empty() && result.ending.exit_code == k_no_link) {
    throw EngineError(
        fmt::format("--login-host={}: {}", printable(host_), cause_of(*system_, result.errors)));
  }
  std::string cause = cause_of(*system_, result.errors);
  if (cause.empty() || cause.find(system_->no_contact) != std::string::npos) {
    // Reports which controller it asked.
    const std::string ping = run_command(command(std::string(system_->ping), {}, {})).out;
    cause += fmt::format("{}{} says: {}", cause.empty() ? "" : "; ", system_->ping,
                         printable(ping.substr(0, ping.find('\n'))));
  }
  throw EngineError(fmt::format("{}{}: {}", system_->name, place(), cause));
}

} // namespace dtrain::batch
