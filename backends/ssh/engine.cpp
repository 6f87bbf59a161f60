#include "backends/ssh/engine.h"

#include "backends/ssh/ssh_backend.h"
#include "backends/supervised/fields.h"

namespace dtrain::ssh {
namespace {

std::vector<FieldUse> field_uses() {
  return supervised_fields(
      {},
      {{"runs the hosts' own programs",
        {"image", "psImage", "workerImage", "taskImages", "syncImage", "tensorboardImage"}},
       {"gives ranks their host's own devices", {"rdma"}}},
      {
          {"mounts nothing on its hosts: name a folder that they have (--data-dir=/DIR)", {"data"}},
          {"mounts nothing on its hosts: bring files with the code (--sync-mode)", {"configFiles"}},
          {"starts ranks on the hosts that are named (--hosts)",
           {"nodeList", "selectors", "tolerations", "topologySpread", "binpack"}},
      });
}

} // namespace

const Engine& engine() {
  static const Engine all = {
      .name = k_ssh,
      .make = [](const EngineAccess& access) -> std::unique_ptr<Backend> {
        return std::make_unique<SshBackend>(access);
      },
      .fields = field_uses(),
      .notes = {{"minWorkers",
                 "once a host is lost, what fails restarts all on the hosts that are left"}},
      .cannot = {k_no_server},
      .access = {{.name = "hosts",
                  .metavar = "HOST[:SLOTS],…",
                  .help = "Start ranks on these hosts, as ssh knows them: h1,h2:4,gpu[01-16]; or "
                          "on those of a file, ^FILE, or with an attribute, as nodeattr knows it: "
                          "genders:gpu",
                  .env = "DTRAIN_SSH_HOSTS",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "hostfile",
                  .metavar = "FILE",
                  .help = "The same from a file: a host a line, in DeepSpeed's, Open MPI's or "
                          "pdsh's form",
                  .complete = Complete::file,
                  .env = "DTRAIN_SSH_HOSTFILE",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "exclude-hosts",
                  .metavar = "HOSTS",
                  .help = "Hosts that must not be used, whether or not they are listed (h[2-3],h9)",
                  .env = "DTRAIN_SSH_EXCLUDE_HOSTS",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "interface",
                  .metavar = "NAME",
                  .help = "Network interface of the hosts that ranks are reached at",
                  .env = "DTRAIN_SSH_INTERFACE",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "host-timeout",
                  .metavar = "DURATION",
                  .help = "Time without an answer after which a host is lost, and ends its ranks "
                          "where it cannot reach this machine (default: 60s)",
                  .env = "DTRAIN_SSH_HOST_TIMEOUT",
                  .in_profile = true,
                  .picks_hosts = true}},
      .own = {text_field("--include", "HOST[:GPU,…]@…",
                         "Use only these of the hosts, and of them only these GPUs (h1:0,1@h2), as "
                         "DeepSpeed has it"),
              text_field("--exclude", "HOST[:GPU,…]@…",
                         "hosts, or GPUs of them, that must not be used (h1:2@h3), as DeepSpeed "
                         "has it")},
      .helpers = {{k_supervise, supervise_hosts}},
      .records = "jobs/ssh",
  };
  return all;
}

} // namespace dtrain::ssh
