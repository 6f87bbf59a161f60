#include "backends/support/os/port.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <set>
#include <vector>

namespace dtrain {
namespace {

bool can_listen(int port, in_addr_t address, bool reuse) {
  const Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  name.sin_addr.s_addr = htonl(address);
  return bind(server.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 &&
         listen(server.get(), 1) == 0;
}

TEST_CASE("a server that reuses addresses can listen on a reserved port, on any interface") {
  const ReservedPort port;
  CHECK(can_listen(port.number(), INADDR_LOOPBACK, true));
  CHECK(can_listen(port.number(), INADDR_ANY, true));
  CHECK(!can_listen(port.number(), INADDR_ANY, false));
}

TEST_CASE("nobody who asks for any free port gets a reserved one") {
  std::set<int> numbers;
  std::vector<ReservedPort> ports(200);
  for (const auto& port : ports) {
    CHECK(numbers.insert(port.number()).second);
  }
}

} // namespace
} // namespace dtrain
