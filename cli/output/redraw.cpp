#include "cli/output/redraw.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {

void Redraw::draw(std::string_view picture) {
  if (lines_ > 0 && lines_ < out_.terminal().height) {
    out_.write(fmt::format("\x1b[{}A\x1b[J", lines_));
  }
  lines_ = std::count(picture.begin(), picture.end(), '\n');
  out_.write(picture);
  out_.flush();
}

} // namespace dtrain
