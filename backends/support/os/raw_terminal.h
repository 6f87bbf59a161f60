// The terminal while what is typed goes elsewhere, keys as Ctrl-C included.
#pragma once

#include <termios.h>

namespace dtrain {

class RawTerminal {
 public:
  /// Raw mode for `fd` while this lives. Throws Error where it is no terminal.
  explicit RawTerminal(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  int fd_;
  termios before_{};
};

struct TerminalSize {
  int columns = 0;
  int rows = 0;
};

/// Of the terminal that `fd` is; 0 columns where it does not say.
TerminalSize terminal_size(int fd);

} // namespace dtrain
