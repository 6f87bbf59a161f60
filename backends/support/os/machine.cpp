#include "backends/support/os/machine.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>

namespace dtrain {

namespace {

/// The first line of a file; empty if it cannot be read.
std::string line_of(const char* path) {
  try {
    const auto text = read_file_at(AT_FDCWD, path).value_or("");
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return {};
  }
}

} // namespace

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

const Machine& this_machine() {
  static const Machine machine = [] {
    struct stat space {};
    const bool known = stat("/proc/self/ns/pid", &space) == 0;
    return Machine{host_name(), line_of("/etc/machine-id"),
                   line_of("/proc/sys/kernel/random/boot_id"), known ? space.st_ino : 0};
  }();
  return machine;
}

Whereabouts whereabouts(const Machine& machine, const Machine& seen_from) {
  if (machine.boot == seen_from.boot) {
    const bool same =
        machine.pid_namespace == seen_from.pid_namespace || machine.pid_namespace == 0;
    return same ? Whereabouts::here : Whereabouts::elsewhere;
  }
  return machine.host == seen_from.host && machine.id == seen_from.id ? Whereabouts::restarted
                                                                      : Whereabouts::elsewhere;
}

} // namespace dtrain
