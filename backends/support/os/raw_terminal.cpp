#include "backends/support/os/raw_terminal.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

namespace dtrain {

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  if (tcgetattr(fd_, &before_) != 0) {
    throw Error(fmt::format("cannot set the terminal: {}", errno_text()));
  }
  termios raw = before_;
  cfmakeraw(&raw);
  if (tcsetattr(fd_, TCSANOW, &raw) != 0) {
    throw Error(fmt::format("cannot set the terminal: {}", errno_text()));
  }
}

RawTerminal::~RawTerminal() { tcsetattr(fd_, TCSADRAIN, &before_); }

TerminalSize terminal_size(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

} // namespace dtrain
