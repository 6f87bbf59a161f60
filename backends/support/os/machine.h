// Which machine this is, which start of it and which PID namespace: a process id means something
// there only, and a home may be shared by several machines and by their containers.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

struct Machine {
  std::string host; ///< Its name, for people.
  std::string id;   ///< /etc/machine-id; empty if there is none, as in most containers.
  std::string boot; ///< /proc/sys/kernel/random/boot_id: one start of one kernel.
  std::uint64_t pid_namespace = 0; ///< 0: not known.

  bool operator==(const Machine&) const = default;
};

/// Where a machine is, seen from this one.
enum class Whereabouts {
  here,      ///< Its process ids are ours.
  restarted, ///< It is this machine, before its last start: none of its processes is left.
  elsewhere, ///< Another machine, or another container of this one.
};

/// The machine of this process.
const Machine& this_machine();

Whereabouts whereabouts(const Machine& machine, const Machine& seen_from = this_machine());

/// This machine's name.
std::string host_name();

} // namespace dtrain
