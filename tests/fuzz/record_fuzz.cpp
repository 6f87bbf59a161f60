// What is kept of jobs on disk, which a crash may cut off or a person may edit: a job's record, a
// folder's manifest and a log file's line are read or not, and what was read is written and read
// again the same. The first byte picks the kind.
#include "backends/supervised/store/job_record.h"
#include "backends/support/code/code_manifest.h"
#include "backends/support/logs/log_format.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void check_record(std::string_view text) {
  dtrain::read_job_record_head(text);
  const auto record = dtrain::read_job_record(text);
  if (!record) {
    return;
  }
  const std::string written = dtrain::write_job_record(*record);
  const auto again = dtrain::read_job_record(written);
  if (!again || dtrain::write_job_record(*again) != written ||
      !dtrain::read_job_record_head(written)) {
    std::abort();
  }
}

void check_manifest(std::string_view text) {
  const auto manifest = dtrain::read_manifest(text);
  if (manifest && dtrain::read_manifest(dtrain::write_manifest(*manifest)) != manifest) {
    std::abort();
  }
}

void check_line(std::string_view text) {
  const auto line = dtrain::parse_log_entry(text);
  if (line && line->text.size() > text.size()) {
    std::abort();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
  case 0:
    check_record(text);
    break;
  case 1:
    check_manifest(text);
    break;
  default:
    check_line(text);
  }
  return 0;
}
