#include "backends/ssh/rank_script.h"

#include "backends/ssh/payload.h"
#include "submit/template/quote.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

std::string rank_script(const RankCommand& command, const RankSetting& setting) {
  // $run is agent.sh's: the job's folder there.
  const auto folder =
      (command.working_dir.starts_with('/') ? "" : "\"$run\"/") + quote_sh(command.working_dir);
  std::string exports;
  std::string others; // Arguments of env, which are visible until it becomes the program.
  for (const auto& [name, value] : command.env) {
    if (value == k_own_hostfile) {
      exports += fmt::format("export {}=\"$run/hostfile\"\n", name);
    } else if (is_exportable(name)) {
      exports += fmt::format("export {}={}\n", name, quote_sh(value));
    } else {
      others += ' ' + quote_sh(fmt::format("{}={}", name, value));
    }
  }
  if (setting.launches) {
    exports += "launcher_variables\n";
  }
  std::string words = " " + quote_sh(command.argv.front());
  if (!setting.bundle.empty()) {
    words = fmt::format(" \"$bundle\"/{}", k_trainer_file);
  }
  for (std::size_t i = 1; i < command.argv.size(); ++i) {
    words += " " + quote_sh(command.argv[i]);
  }
  auto text = fmt::format("hostfile={}\n"
                          "bundle=${{XDG_CACHE_HOME:-$HOME/.cache}}/dtrain/ssh/{}\n"
                          "setsid=$(command -v setsid)\nenv=$(command -v env)\nbegin() {{\n",
                          quote_sh(command.hostfile), setting.bundle);
  text += "printf %s \"$hostfile\" >\"$run/hostfile.$id\" && "
          "mv \"$run/hostfile.$id\" \"$run/hostfile\"\n";
  if (setting.has_launcher) {
    text += launcher_tools();
  }
  text += fmt::format("cd {} || exit 126\nset -- \"$setsid\" \"$env\"\n{}", folder, exports);
  text += others.empty() ? fmt::format("exec \"$1\" --{}\n", words)
                         : fmt::format("exec \"$2\"{} \"$1\" --{}\n", others, words);
  return text + "}\n";
}

} // namespace dtrain::ssh
