#include "backends/support/os/pipe.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace dtrain {

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw EngineError(fmt::format("cannot make a pipe: {}", errno_text()));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

void make_non_blocking(const Fd& fd) { fcntl(fd.get(), F_SETFL, O_NONBLOCK); }

std::string read_what_is_there(const Fd& pipe) {
  std::string text;
  std::array<char, 4096> block{};
  ssize_t count = 0;
  while (pipe && (count = read(pipe.get(), block.data(), block.size())) > 0) {
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return text;
}

} // namespace dtrain
