#include "backends/ssh/port_forward.h"

#include "backends/ssh/ssh_command.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/port.h"
#include "backends/support/os/signal_fd.h"
#include "backends/support/os/spawn.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>

namespace dtrain::ssh {

int forward_port(const std::string& host, int port, const std::string& remote,
                 const std::function<void(const std::string& url)>& opened) {
  const SignalFd signals({SIGINT, SIGTERM});
  const ReservedPort any;
  const int here = port != 0 ? port : any.number();
  // The host says when the way is there, and the end of our pipe ends its ssh.
  auto words = ssh_command(host, "echo open; exec cat");
  const auto way = fmt::format("127.0.0.1:{}:localhost:{}", here, remote);
  words.insert(words.begin() + 1, // The first word on an option counts.
               {"-o", "ExitOnForwardFailure=yes", "-o", "ClearAllForwardings=no", "-L", way});
  auto in = make_pipe();
  auto out = make_pipe();
  const auto pid = spawn({.argv = words,
                          .in = in.read_end.get(),
                          .out = out.write_end.get(),
                          .err = out.write_end.get(),
                          .leads_group = true});
  in.read_end.reset();
  out.write_end.reset();
  std::string said;
  bool is_open = false;
  while (true) {
    std::array<pollfd, 2> events{{{signals.fd(), POLLIN, 0}, {out.read_end.get(), POLLIN, 0}}};
    poll(events.data(), events.size(), -1);
    if (const int signal = signals.take(); signal != 0) {
      in.write_end.reset();
      kill(-pid, SIGTERM);
      wait_for_child(pid);
      return signal;
    }
    if (events[1].revents == 0) {
      continue;
    }
    std::array<char, 4096> block{};
    const auto count = read(out.read_end.get(), block.data(), block.size());
    if (count <= 0) {
      wait_for_child(pid);
      throw EngineError(
          fmt::format("cannot reach TensorBoard's port on {}: {}", host, explain_loss(host, said)));
    }
    said.append(block.data(), static_cast<std::size_t>(count));
    if (!is_open && (said.starts_with("open\n") || said.find("\nopen\n") != said.npos)) {
      is_open = true;
      opened(fmt::format("http://127.0.0.1:{}", here));
    }
  }
}

} // namespace dtrain::ssh
