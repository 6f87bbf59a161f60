#include "backends/supervised/launcher_tools.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/template/render.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace dtrain {

namespace {

constexpr const char* k_tools = "bin";

} // namespace

void write_launcher_tools(const JobFolder& folder) {
  const Fd tools =
      open_private_folder_at(folder.fd(), k_tools, folder.path() + "/" + k_tools, true);
  for (const auto* name : {"deepspeed", "discover_hosts.sh", "ssh"}) {
    const auto script = std::string(name).substr(0, std::string_view(name).find('.'));
    write_file_at(tools.get(), name, builtin_template(fmt::format("launchers/{}.sh", script)).text);
    if (fchmodat(tools.get(), name, S_IRWXU, 0) != 0) {
      throw EngineError(fmt::format("cannot write {}/{}: {}", k_tools, name, errno_text()));
    }
  }
}

void add_launcher_env(EnvVars& env, const JobFolder& folder) {
  const char* inherited = std::getenv("PATH");
  std::string path = inherited != nullptr ? inherited : "/bin:/usr/bin";
  for (const auto& [key, value] : env) {
    path = key == "PATH" ? value : path;
  }
  env.emplace_back("PATH", fmt::format("{}/{}:{}", folder.path(), k_tools, path));
  env.emplace_back("PDSH_RCMD_TYPE", "ssh"); // The one beside it in PATH.
  if (geteuid() == 0) {
    env.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    env.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
}

} // namespace dtrain
