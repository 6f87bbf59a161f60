// A picture drawn over the one before it; of one taller than the screen, as much as it holds.
#pragma once

#include "cli/output/stream.h"

#include <cstddef>
#include <functional>
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

/// Draws what `print` writes, again each time it has changed; on a pipe, one below the other. Until
/// a signal ends the program.
[[noreturn]] void redraw_forever(Stream& out, const std::function<void(Stream& picture)>& print);

} // namespace dtrain
