#include "cli/output/redraw.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace dtrain {

void Redraw::draw(std::string_view picture) {
  if (lines_ > 0) {
    out_.write(fmt::format("\x1b[{}A\x1b[J", lines_));
  }
  // The last line of the screen holds the cursor; the line above it says what is not shown.
  const std::ptrdiff_t all = std::count(picture.begin(), picture.end(), '\n');
  const std::ptrdiff_t room = std::max(out_.terminal().height - 1, 2);
  lines_ = std::min(all, room);
  if (all <= room) {
    out_.write(picture);
  } else {
    std::size_t end = 0;
    for (std::ptrdiff_t line = 0; line < room - 1; ++line) {
      end = picture.find('\n', end) + 1;
    }
    out_.write(picture.substr(0, end));
    out_.write(fmt::format("… and {} more lines\n", all - room + 1));
  }
  out_.flush();
}

void redraw_forever(Stream& out, const std::function<void(Stream& picture)>& print) {
  constexpr std::chrono::seconds k_interval{1};
  Redraw redraw(out);
  std::string last;
  while (true) {
    Stream picture;
    picture.set_terminal(out.terminal());
    print(picture);
    if (picture.text() != last) {
      last = picture.text();
      if (out.terminal().is_terminal) {
        redraw.draw(last);
      } else {
        out.write(last);
        out.flush();
      }
    }
    std::this_thread::sleep_for(k_interval);
  }
}

} // namespace dtrain
