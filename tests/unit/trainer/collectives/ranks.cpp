#include "ranks.h"

#include <list>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include "tests/unit/thread.h"

namespace trainer::test {

HeldPort::HeldPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int one = 1;
  REQUIRE(setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  number_ = local_address(socket_).port();
}

Cluster cluster_of(int rank, int world_size, int port) {
  Cluster cluster;
  cluster.rank = rank;
  cluster.world_size = world_size;
  cluster.local_rank = rank;
  cluster.local_world_size = world_size;
  cluster.master_addr = "127.0.0.1";
  cluster.master_port = port;
  cluster.job_token = "a token for tests";
  return cluster;
}

CommOptions options_for(CommOptions::Transport transport) {
  CommOptions options;
  options.transport = transport;
  options.rendezvous_timeout = 20;
  return options;
}

std::vector<std::string> run_threads(const std::vector<std::function<void()>>& bodies) {
  std::list<unit::Thread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back(std::cref(body));
  }
  std::vector<std::string> thrown;
  for (unit::Thread& thread : threads) {
    thrown.push_back(thread.thrown());
  }
  return thrown;
}

std::vector<std::string> run_ranks(int world_size, const CommOptions& options,
                                   const std::function<void(Communicator&)>& body) {
  return run_on_hosts(std::vector<std::string>(static_cast<std::size_t>(world_size)), options,
                      body);
}

std::vector<std::string> run_on_hosts(const std::vector<std::string>& hosts,
                                      const CommOptions& options,
                                      const std::function<void(Communicator&)>& body) {
  const HeldPort port;
  const int world_size = static_cast<int>(hosts.size());
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < world_size; ++rank) {
    bodies.emplace_back([&, rank] {
      CommOptions own = options;
      own.host_identity = hosts[static_cast<std::size_t>(rank)];
      const auto communicator = connect(cluster_of(rank, world_size, port.number()), own);
      body(*communicator);
    });
  }
  return run_threads(bodies);
}

void run_ranks_cleanly(int world_size, const CommOptions& options,
                       const std::function<void(Communicator&)>& body) {
  for (const std::string& thrown : run_ranks(world_size, options, body)) {
    CHECK(thrown == "");
  }
}

} // namespace trainer::test
