#include "cli/output/stream.h"

#include "submit/errors.h"
#include "submit/options/environment.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

namespace dtrain {
namespace {

constexpr std::size_t k_flush_at = std::size_t{1} << 16U;

std::string_view env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

bool wants_colour(bool is_terminal) {
  if (const auto forced = env(environment::k_force_color.name); !forced.empty()) {
    return forced != "0" && forced != "false";
  }
  if (!env(environment::k_no_color.name).empty()) {
    return false;
  }
  if (const auto forced = env("CLICOLOR_FORCE"); !forced.empty() && forced != "0") {
    return true;
  }
  return is_terminal && !env("TERM").empty() && env("TERM") != "dumb" && env("CLICOLOR") != "0";
}

std::string_view escape(Style style) {
  switch (style) {
  case Style::plain:
    return "";
  case Style::bold:
    return "\x1b[1m";
  case Style::dim:
    return "\x1b[2m";
  case Style::red:
    return "\x1b[31m";
  case Style::green:
    return "\x1b[32m";
  case Style::yellow:
    return "\x1b[33m";
  case Style::blue:
    return "\x1b[34m";
  case Style::magenta:
    return "\x1b[35m";
  case Style::cyan:
    return "\x1b[36m";
  }
  return "";
}

} // namespace

Terminal Terminal::of(int fd) {
  Terminal terminal;
  terminal.is_terminal = isatty(fd) == 1;
  terminal.colour = wants_colour(terminal.is_terminal);
  winsize size = {};
  if (terminal.is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
    terminal.height = size.ws_row;
  }
  return terminal;
}

void Stream::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= k_flush_at) {
    flush();
  }
}

void Stream::flush() {
  if (fd_ < 0) {
    return;
  }
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      const int error = errno;
      buffer_.clear();
      if (error == EPIPE) {
        throw BrokenPipe{};
      }
      throw Error(fmt::format("cannot write to standard {}: {}",
                              fd_ == STDERR_FILENO ? "error" : "output", std::strerror(error)));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

std::string styled(const Terminal& terminal, Style style, std::string_view text) {
  if (!terminal.colour || style == Style::plain || text.empty()) {
    return std::string(text);
  }
  return fmt::format("{}{}\x1b[0m", escape(style), text);
}

} // namespace dtrain
