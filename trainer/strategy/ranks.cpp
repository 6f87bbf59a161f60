#include "trainer/strategy/ranks.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/collectives/agreement.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/in_process/peer_tree.h"
#include "trainer/collectives/nccl/choice.h"
#include "trainer/collectives/nccl/nccl_group.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/device/numa.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

/// Says why another one would not do.
class Explained final : public ForwardingCommunicator {
 public:
  Explained(Communicator& inner, std::string why)
      : ForwardingCommunicator(inner), why_(std::move(why)) {}
  std::string describe() const override { return inner().describe() + why_; }

 private:
  std::string why_;
};

/// One a replica; none where they are CPUs.
std::vector<CudaDevice*> gpus_among(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<CudaDevice*> gpus;
  for (const auto& device : devices) {
    if (CudaDevice* gpu = device->cuda(); gpu != nullptr) {
      gpus.push_back(gpu);
    }
  }
  return gpus;
}

/// The flag that asks for NCCL, which needs `gpus`; empty: none does.
std::string flag_for_nccl(const RankOptions& options, const std::vector<CudaDevice*>& gpus,
                          const Device& first) {
  std::string flag = options.comm.communication == CommOptions::Communication::nccl
                         ? "--communication=nccl"
                     : options.ops == CrossDeviceOps::nccl ? "--cross-device-ops=nccl"
                                                           : "";
  if (!flag.empty() && gpus.empty()) {
    throw UsageError(fmt::format("{}: NCCL needs GPUs, and this process computes on {}; use "
                                 "--device=cuda where there is one, or leave the choice open",
                                 flag, first.describe()));
  }
  return flag;
}

bool may_be_nccl(const RankOptions& options) {
  using enum CommOptions::Communication;
  return options.comm.communication == nccl ||
         (options.comm.communication == automatic &&
          (options.ops == CrossDeviceOps::nccl || options.ops == CrossDeviceOps::automatic));
}

} // namespace

std::string place_near(Device& device, const CommOptions& options) {
  const auto node =
      device.cuda() == nullptr ? std::nullopt : numa_node_of(device.cuda()->pci_bus_id());
  if (!node) {
    return "";
  }
  if (bind_to(*node)) {
    return fmt::format("on the CPUs of NUMA node {}", node->number);
  }
  if (options.notice) {
    options.notice(fmt::format("{}: is at NUMA node {}, but this process may use none of that "
                               "node's CPUs, so copies are slower; see taskset -p, --cpu-bind",
                               device.describe(), node->number));
  }
  return "";
}

void run_ranks(const RankOptions& options, const std::function<void()>& prepare,
               const std::function<void(const Rank&)>& body) {
  const Cluster& cluster = options.cluster;
  const int replicas = options.replicas();
  std::vector<std::unique_ptr<Device>> devices; // Before anyone waits for this process.
  devices.reserve(static_cast<std::size_t>(replicas));
  for (const std::string& device : options.devices) {
    devices.push_back(make_device(device, cluster.local_rank));
  }
  std::vector<CudaDevice*> gpus = gpus_among(devices);
  const std::string asked = flag_for_nccl(options, gpus, *devices.front());
  std::unique_ptr<Communicator> between; // Of the workers.
  std::optional<NcclGroup> nccl;
  NcclChoice choice;
  std::optional<PeerTree> peers;
  std::string why_no_peers;
  const auto run_one = [&](Communicator& communicator) {
    const int replica = communicator.rank() % replicas;
    Cluster own = cluster;
    own.world_size *= replicas;
    own.local_world_size *= replicas;
    own.rank = communicator.rank();
    own.local_rank = cluster.local_rank * replicas + replica;
    Device& device = *devices[static_cast<std::size_t>(replica)];
    const std::string placement = place_near(device, options.comm);
    if (nccl) {
      NcclCommunicator by_nccl(communicator, *nccl, replica);
      body({own, device, by_nccl, placement});
    } else if (!device.is_host()) {
      DeviceCommunicator of_device(communicator, device);
      if (peers) {
        PeerCommunicator by_peers(of_device, *peers, replica);
        body({own, device, by_peers, placement});
      } else {
        body({own, device, of_device, placement});
      }
    } else {
      body({own, device, communicator});
    }
  };
  const auto run = [&](Communicator& communicator) {
    try {
      const std::string& why = why_no_peers.empty() ? choice.why : why_no_peers;
      Explained explained(communicator, why);
      run_one(why.empty() ? communicator : explained);
    } catch (const std::exception& error) {
      if (nccl) {
        nccl->fail(error.what()); // Else the other replicas wait for this one's part.
      }
      throw;
    }
  };
  const auto choose = [&] {
    if (may_be_nccl(options)) {
      choice = choose_nccl(*between, gpus, asked);
      if (choice.nccl != nullptr) {
        nccl.emplace(*choice.nccl, gpus, *between, options.comm.rendezvous_timeout);
      }
    }
  };
  if (cluster.world_size == 1 && replicas > 1) {
    between = make_single_rank();
    if (!gpus.empty()) {
      choose();
    }
    if (!gpus.empty() && options.ops == CrossDeviceOps::hierarchical_copy) {
      why_no_peers = let_peers_in(gpus);
      if (why_no_peers.empty()) {
        peers.emplace(gpus);
      } else {
        why_no_peers = "; " + why_no_peers;
      }
    }
    prepare();
    run_replicas(replicas, options.ops, run);
    return;
  }
  between = connect(cluster, options.comm);
  check_equal_replicas(replicas, *between);
  // Auto is one choice for all: of CPUs and GPUs side by side each would have other bits.
  if (options.devices.front() == "auto" && cluster.world_size > 1) {
    if (const std::string why = why_no_gpus(!gpus.empty(), *between); !why.empty()) {
      gpus.clear();
      devices.front() = make_device("auto", cluster.local_rank, why);
    }
  }
  telling_peers(*between, [&] {
    if (cluster.world_size > 1) {
      choose();
    }
    prepare();
    replicas == 1 ? run(*between) : run_replicas(replicas, *between, run);
  });
}

} // namespace trainer
