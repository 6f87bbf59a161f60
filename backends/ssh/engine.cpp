#include "backends/ssh/engine.h"

#include "backends/ssh/host_list.h"
#include "backends/ssh/ssh_backend.h"
#include "backends/supervised/fields.h"

namespace dtrain::ssh {
namespace {

std::vector<FieldUse> field_uses() {
  return supervised_fields(
      {},
      {{"runs programs that are installed on the hosts, not images",
        {"image", "psImage", "workerImage", "taskImages", "syncImage", "tensorboardImage"}},
       {"lets ranks use all devices of their host", {"rdma"}}},
      {
          {"mounts nothing on the hosts: give a folder that exists there (--data-dir=/DIR)",
           {"data"}},
          {"mounts nothing on the hosts: send the files with the code (--sync-mode)",
           {"configFiles"}},
          {"starts ranks on the hosts that --hosts lists",
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
      .notes = {{"gpus", "if too few, fails"},
                {"checkGpus", "a worker of an elastic job for which its host has no GPU left takes "
                              "a free slot of another host, or is left out"},
                {"minWorkers",
                 "after a host is lost, a failure restarts all workers on the remaining hosts"}},
      .cannot = {k_no_server},
      .access = {{.name = "hosts",
                  .metavar = "HOST[:SLOTS],…",
                  .help = "Hosts to start ranks on, by their ssh names: h1,h2:4,gpu[01-16]; ^FILE "
                          "reads them from a file, genders:ATTRIBUTE asks nodeattr",
                  .env = "DTRAIN_SSH_HOSTS",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "hostfile",
                  .metavar = "FILE",
                  .help =
                      "File of hosts, one per line, in the format of DeepSpeed, Open MPI or pdsh",
                  .complete = Complete::file,
                  .env = "DTRAIN_SSH_HOSTFILE",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "exclude-hosts",
                  .metavar = "HOSTS",
                  .help = "Hosts to skip, even if they are listed (h[2-3],h9)",
                  .env = "DTRAIN_SSH_EXCLUDE_HOSTS",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "interface",
                  .metavar = "NAME",
                  .help = "Network interface on which ranks reach each other (eth0)",
                  .env = "DTRAIN_SSH_INTERFACE",
                  .in_profile = true,
                  .picks_hosts = true},
                 {.name = "host-timeout",
                  .metavar = "DURATION",
                  .help = "Give up a host that has not answered for this long; a host that cannot "
                          "reach this machine for as long ends its ranks (default: 60s)",
                  .env = "DTRAIN_SSH_HOST_TIMEOUT",
                  .in_profile = true,
                  .picks_hosts = true}},
      .own = {text_field("--include", "HOST[:GPU,…]@…",
                         "Use only these hosts and GPUs, in DeepSpeed's syntax (h1:0,1@h2)"),
              text_field("--exclude", "HOST[:GPU,…]@…",
                         "do not use these hosts or GPUs, in DeepSpeed's syntax (h1:2@h3)")},
      .variables = {k_wcoll},
      .helpers = {{k_supervise, supervise_hosts}},
      .records = "jobs/ssh",
  };
  return all;
}

} // namespace dtrain::ssh
