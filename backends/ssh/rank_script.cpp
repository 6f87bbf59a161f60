#include "backends/ssh/rank_script.h"

#include "backends/ssh/cargo.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace dtrain::ssh {

namespace {

/// True where every sh can export the variable as it is given: a name, and none that some shell
/// keeps for itself.
bool is_exportable(std::string_view name) {
  constexpr std::string_view k_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  constexpr std::string_view k_digits = "0123456789";
  constexpr std::array<std::string_view, 14> k_own{
      "_",      "BASHOPTS", "BASHPID", "BASH_ARGV0", "EPOCHSECONDS", "EUID",      "FUNCNAME",
      "GROUPS", "LINENO",   "PPID",    "RANDOM",     "SECONDS",      "SHELLOPTS", "UID"};
  const auto is_of = [](std::string_view set, char c) { return set.find(c) != set.npos; };
  return !name.empty() && is_of(k_letters, name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_of(k_letters, c) || is_of(k_digits, c); }) &&
         std::find(k_own.begin(), k_own.end(), name) == k_own.end();
}

std::string text_of(const char* name) { return std::string(builtin_template(name).text); }

/// Laid out on every host of the job.
std::string launcher_tools() {
  auto text = text_of("ssh/launcher.sh");
  for (const auto& [name, script] :
       {std::pair("ssh", text_of("launchers/ssh_to_workers.sh")),
        std::pair("enter", text_of("ssh/variables.sh") + text_of("ssh/enter.sh")),
        std::pair("deepspeed", text_of("launchers/deepspeed.sh")),
        std::pair("discover_hosts.sh", text_of("launchers/discover_hosts.sh"))}) {
    text += fmt::format("put {} {}\n", name, quote_sh(script));
  }
  return text;
}

} // namespace

std::chrono::seconds guard_patience() {
  constexpr int k_default = 20;
  constexpr int k_least = 5;
  constexpr int k_most = 86400;
  const char* said = std::getenv("DTRAIN_SSH_PATIENCE");
  const int seconds = said == nullptr ? 0 : std::atoi(said);
  return std::chrono::seconds(seconds >= k_least && seconds <= k_most ? seconds : k_default);
}

std::string rank_script(const RankCommand& command, const RankSetting& setting) {
  constexpr int k_ms = 1000;
  // $store and $place are host.sh's.
  const auto folder =
      (command.working_dir.starts_with('/') ? "" : "\"$place\"/") + quote_sh(command.working_dir);
  std::string exports;
  std::string others; // For env, whose words can be seen until it becomes the program.
  for (const auto& [name, value] : command.env) {
    if (is_exportable(name)) {
      exports += fmt::format("export {}={}\n", name, quote_sh(value));
    } else {
      others += ' ' + quote_sh(fmt::format("{}={}", name, value));
    }
  }
  if (setting.launches) {
    exports += "launcher_variables\n";
  }
  std::string words = setting.parcel.empty()
                          ? " " + quote_sh(command.argv.front())
                          : fmt::format(" \"$store\"/{}/{}", setting.parcel, k_trainer_file);
  for (std::size_t i = 1; i < command.argv.size(); ++i) {
    words += " " + quote_sh(command.argv[i]);
  }
  return (setting.has_launcher ? launcher_tools() : "") +
         fmt::format("mark={0}={1}\npatience={2}\ngrace={3}\nhostfile={4}\n"
                     "setsid=$(command -v setsid)\nenv=$(command -v env)\n"
                     "begin() {{\ncd {5} || exit 126\nset -- \"$setsid\" \"$env\"\n{6}"
                     "export {0}={1}\n",
                     k_process_variable, setting.id, guard_patience().count(),
                     (setting.grace_ms + k_ms - 1) / k_ms, quote_sh(command.hostfile), folder,
                     exports) +
         (others.empty() ? fmt::format("exec \"$1\" --{}\n", words)
                         : fmt::format("exec \"$2\"{} \"$1\" --{}\n", others, words)) +
         "}\n" + text_of("ssh/guard.sh");
}

} // namespace dtrain::ssh
