#include "backends/support/progress.h"

#include <fmt/format.h>

#include <array>

namespace dtrain {

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> k_units = {"kB", "MB", "GB", "TB"};
  constexpr double k_step = 1000;
  if (bytes < static_cast<std::int64_t>(k_step)) {
    return fmt::format("{} bytes", bytes);
  }
  double value = static_cast<double>(bytes) / k_step;
  std::size_t unit = 0;
  for (; value >= k_step && unit + 1 < k_units.size(); ++unit) {
    value /= k_step;
  }
  return fmt::format("{:.1f} {}", value, k_units.at(unit));
}

void report(const SubmitSink& tell, const SubmitProgress& progress) {
  if (tell) {
    tell(progress);
  }
}

CopySink as_step(SubmitStep step, const SubmitSink& tell) {
  return [step, &tell](const CopyProgress& now) {
    report(tell,
           {.step = step,
            .bytes = now.bytes,
            .bytes_total = now.bytes_total,
            .text = fmt::format("{} of {}", bytes_text(now.bytes), bytes_text(now.bytes_total))});
  };
}

std::string copied_text(const CopyProgress& done) {
  return fmt::format("{} file{}, {}; new: {}, {}", done.files, done.files == 1 ? "" : "s",
                     bytes_text(done.bytes), done.new_files, bytes_text(done.new_bytes));
}

} // namespace dtrain
