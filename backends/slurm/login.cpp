#include "backends/slurm/login.h"

#include "backends/support/os/foreground.h"
#include "submit/errors.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <unistd.h>

namespace dtrain::slurm {
namespace {

constexpr int k_not_found = 127; ///< Of sh: there is no such command.
constexpr int k_no_link = 255;   ///< Of ssh.

/// What a person needs of "sbatch: error: Batch job submission failed: Invalid qos".
std::string cause_of(const std::string& errors) {
  std::string_view text = errors;
  for (const std::string_view noise : {"Batch job submission failed: ", "error: "}) {
    if (const auto at = text.find(noise); at != std::string_view::npos) {
      text.remove_prefix(at + noise.size());
      break;
    }
  }
  return printable(text.substr(0, text.find('\n')));
}

[[noreturn]] void throw_no_commands(const std::string& place, std::string_view why) {
  throw EngineError(fmt::format("Slurm's commands are not in PATH{} ({}): install Slurm's client "
                                "there, or name a host that has it: --login-host=HOST",
                                place, printable(why)));
}

} // namespace

const std::vector<std::pair<std::string, std::string>>& Login::plain_words() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"SLURM_TIME_FORMAT", "%s"}, {"SLURM_BITSTR_LEN", "0"}, {"LC_ALL", "C"}};
  return all;
}

Command Login::command(const std::string& script, const std::vector<std::string>& args,
                       std::string input) const {
  std::string settings = "export";
  for (const auto& [name, value] : plain_words()) {
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
  command.argv = {"ssh", "-o", "BatchMode=yes", "--", host_, line};
  return command;
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

std::unique_ptr<Subprocess> Login::start(const Command& command) {
  try {
    return std::make_unique<Subprocess>(command);
  } catch (const EngineError& error) {
    throw_no_commands("", error.what());
  }
}

void Login::refuse(const CommandResult& result) const {
  if (result.ending.exit_code == k_not_found) {
    throw_no_commands(place(), result.errors.substr(0, result.errors.find('\n')));
  }
  if (!host_.empty() && result.ending.exit_code == k_no_link) {
    throw EngineError(
        fmt::format("--login-host={}: {}", printable(host_), cause_of(result.errors)));
  }
  std::string cause = cause_of(result.errors);
  if (cause.empty() || cause.find("contact slurm controller") != std::string::npos) {
    // Where it looked for which controller.
    const std::string ping = run_command(command("scontrol ping", {}, {})).out;
    cause += fmt::format("{}scontrol ping says: {}", cause.empty() ? "" : "; ",
                         printable(ping.substr(0, ping.find('\n'))));
  }
  throw EngineError(fmt::format("Slurm{}: {}", place(), cause));
}

} // namespace dtrain::slurm
