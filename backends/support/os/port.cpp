#include "backends/support/os/port.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace dtrain {

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(socket_.get(), generic, size) != 0 || getsockname(socket_.get(), generic, &size) != 0) {
    throw EngineError(fmt::format("cannot reserve a port on 127.0.0.1: {}", errno_text()));
  }
  number_ = ntohs(address.sin_port);
}

} // namespace dtrain
