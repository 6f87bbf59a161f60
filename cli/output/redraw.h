// A picture drawn over the one before it, where the screen holds it; else below it.
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
