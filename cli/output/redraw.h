// A picture drawn over the one before it; of one taller than the screen, as much as it holds.
#pragma once

#include "cli/output/stream.h"

#include <cstddef>
#include <string_view>

namespace dtrain {

class Redraw {
 public:
  explicit Redraw(Stream& out) : out_(out) {}

  void draw(std::string_view picture);

 private:
  Stream& out_;
  std::ptrdiff_t lines_ = 0;
};

} // namespace dtrain
