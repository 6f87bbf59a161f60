// The terminal in raw mode, while input goes elsewhere, including keys such as Ctrl-C.
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

/// Size of the terminal `fd`; 0 columns if it does not tell.
TerminalSize terminal_size(int fd);

} // namespace dtrain
