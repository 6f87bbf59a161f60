#include "backends/support/copy_progress.h"

#include "backends/support/bytes_text.h"
#include "backends/support/report.h"

#include <fmt/format.h>

namespace dtrain {

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
