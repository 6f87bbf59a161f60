// Standard output or standard error of a command, and what a terminal there can show.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

inline constexpr int k_default_width = 80;

struct Terminal {
  bool is_terminal = false;
  bool colour = false;
  int width = k_default_width; ///< Columns.
  int height = 0;              ///< Rows; 0: not a terminal.

  /// Asks the file descriptor and the environment. Colour: FORCE_COLOR, then NO_COLOR, then
  /// CLICOLOR_FORCE decide; else a terminal has it unless TERM=dumb or CLICOLOR=0.
  static Terminal of(int fd);
};

/// Collects text and writes it in large pieces; a table of 10,000 rows is one write.
class Stream {
 public:
  /// Keeps all it is given in memory, for tests.
  Stream() = default;
  Stream(int fd, Terminal terminal) : fd_(fd), terminal_(terminal) {}

  const Terminal& terminal() const { return terminal_; }
  void set_terminal(Terminal terminal) { terminal_ = terminal; }

  void write(std::string_view text);

  /// Throws Error where the text cannot be written, BrokenPipe where nobody reads it.
  void flush();

  /// The text written to a stream in memory.
  const std::string& text() const { return buffer_; }

 private:
  int fd_ = -1;
  Terminal terminal_;
  std::string buffer_;
};

/// The reader has gone (`dtrain logs | head`): no message is due.
struct BrokenPipe {};

enum class Style { plain, bold, dim, red, green, yellow, blue, magenta, cyan };

/// `text` in a style, where the terminal shows colour.
std::string styled(const Terminal& terminal, Style style, std::string_view text);

} // namespace dtrain
