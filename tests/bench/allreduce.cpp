// Collectives of float32: best and median seconds a size, one JSON line each, by rank 0.
//
//   bench-allreduce [--op=all_reduce|reduce_scatter|all_gather] [--ranks=N] [--hosts=N]
//                   [--transport=auto|shared-memory|tcp|mpi] [--buffer=registered|ordinary]
//                   [--wire=fp32|bf16|fp16] [--tcp-streams=N] [BYTES…]
//
// With --ranks it starts N ranks itself; without, the environment says which rank this is.
// --hosts has the ranks that it starts take themselves for those of so many hosts, in turn.
// Ordinary is memory of the caller's own, as gloo and MPI get it; registered is allocate()'s.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/cluster/cluster.h"
#include "trainer/collectives/communicator.h"
#include "trainer/job/socket.h"

namespace {

using namespace trainer;

struct Arguments {
  int ranks = 0;
  int hosts = 1;
  Collective::Kind op = Collective::Kind::all_reduce;
  std::string op_name = "all_reduce";
  CommOptions comm;
  bool registered = false;
  WireType wire = WireType::fp32;
  std::vector<std::size_t> sizes;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string value(word.substr(std::min(word.find('=') + 1, word.size())));
    if (word.starts_with("--ranks=")) {
      arguments.ranks = std::stoi(value);
    } else if (word.starts_with("--transport=")) {
      using enum CommOptions::Transport;
      arguments.comm.transport = value == "tcp" ? tcp : value == "auto" ? automatic : shared_memory;
      if (value == "mpi") {
        arguments.comm.transport = automatic;
        arguments.comm.communication = CommOptions::Communication::mpi;
      }
    } else if (word.starts_with("--hosts=")) {
      arguments.hosts = std::stoi(value);
    } else if (word.starts_with("--op=")) {
      using enum Collective::Kind;
      arguments.op_name = value;
      arguments.op = value == "reduce_scatter" ? reduce_scatter
                     : value == "all_gather"   ? all_gather
                                               : all_reduce;
    } else if (word.starts_with("--tcp-streams=")) {
      arguments.comm.tcp_streams = std::stoi(value);
    } else if (word.starts_with("--wire=")) {
      arguments.wire = parse_wire_type(value).value(); // bad_optional_access: no such type.
    } else if (word.starts_with("--buffer=")) {
      arguments.registered = value == "registered";
    } else {
      arguments.sizes.push_back(std::stoul(std::string(word)));
    }
  }
  if (arguments.sizes.empty()) {
    arguments.sizes = {1024, 407080, 1U << 20, 16U << 20, 64U << 20};
  }
  return arguments;
}

int repetitions(std::size_t bytes) {
  constexpr std::size_t k_small = 1U << 20;
  constexpr std::size_t k_medium = 16U << 20;
  return bytes <= k_small ? 200 : bytes <= k_medium ? 20 : 8;
}

void measure(const Cluster& cluster, const Arguments& arguments) {
  const auto communicator = connect(cluster, arguments.comm);
  for (const std::size_t bytes : arguments.sizes) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> ordinary(arguments.registered ? 0 : count);
    const std::span<float> buffer =
        arguments.registered ? communicator->allocate(count) : std::span<float>(ordinary);
    std::fill(buffer.begin(), buffer.end(), 1.F);
    communicator->wait(communicator->start(arguments.op, buffer, "warm-up", arguments.wire));
    const auto n = static_cast<float>(communicator->world_size());
    const float expected = arguments.op == Collective::Kind::all_gather ? 1.F : n;
    const Chunks chunks(count, communicator->world_size());
    const auto own =
        arguments.op == Collective::Kind::reduce_scatter
            ? buffer.subspan(chunks.begin(communicator->rank()), chunks.size(communicator->rank()))
            : buffer;
    if (std::any_of(own.begin(), own.end(), [&](float sum) { return sum != expected; })) {
      fmt::print(stderr, "wrong sum of {} bytes\n", bytes);
      std::exit(1);
    }
    std::vector<double> seconds;
    for (int i = 0; i < repetitions(bytes); ++i) {
      communicator->barrier("start");
      const auto begin = Clock::now();
      communicator->wait(communicator->start(arguments.op, buffer, "measured", arguments.wire));
      seconds.push_back(-seconds_until(begin));
      std::fill(buffer.begin(), buffer.end(), 1.F); // Or the sums overflow.
    }
    std::sort(seconds.begin(), seconds.end());
    if (communicator->rank() == 0) {
      fmt::print("{{\"op\": \"{}\", \"bytes\": {}, \"best\": {:.9f}, \"median\": {:.9f}, "
                 "\"ranks\": {}, \"buffer\": \"{}\", \"gigabytes_a_second\": {:.3f}}}\n",
                 arguments.op_name, bytes, seconds[0], seconds[seconds.size() / 2],
                 communicator->world_size(), arguments.registered ? "registered" : "ordinary",
                 static_cast<double>(bytes) / seconds[0] / 1e9);
      std::fflush(stdout);
    }
  }
  communicator->barrier("end");
}

int start_ranks(const Arguments& arguments) {
  const Fd held = [] {
    for (const Address& address : resolve("127.0.0.1", 0)) {
      return listen_at(address);
    }
    return Fd();
  }();
  Cluster cluster;
  cluster.world_size = cluster.local_world_size = arguments.ranks;
  cluster.master_addr = "127.0.0.1";
  cluster.master_port = local_address(held).port();
  const_cast<Fd&>(held).reset();
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      cluster.rank = cluster.local_rank = rank;
      Arguments own = arguments;
      if (arguments.hosts > 1) {
        own.comm.host_identity = fmt::format("host {}", rank % arguments.hosts);
      }
      measure(cluster, own);
      std::exit(0);
    }
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    good = waitpid(child, &status, 0) == child && status == 0 && good;
  }
  return good ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    if (arguments.ranks > 0) {
      return start_ranks(arguments);
    }
    measure(cluster_from_env(), arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-allreduce: {}\n", error.what());
    return 1;
  }
  return 0;
}
