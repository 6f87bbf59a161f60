// Any bytes as a job file: they are read or refused with one line, and what was read is written
// so that it is read back equal.
#include "submit/errors.h"
#include "submit/job_spec.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  dtrain::JobSpec job;
  try {
    job = dtrain::read_job_yaml(text, "job.yaml");
  } catch (const dtrain::UsageError& error) {
    const std::string message = error.what();
    if (message.find('\n') != std::string::npos || !message.starts_with("job.yaml")) {
      std::abort();
    }
    return 0;
  }
  if (!(dtrain::read_job_yaml(dtrain::write_job_yaml(job), "again.yaml") == job)) {
    std::abort();
  }
  if (job.name.empty()) {
    job.name = "fuzz"; // not a random one: the same bytes take the same way
  }
  try {
    const dtrain::JobSpec resolved = dtrain::resolve(job);
    if (!(dtrain::resolve(resolved) == resolved)) {
      std::abort();
    }
  } catch (const dtrain::UsageError&) {
    // Refused, in one line.
  }
  return 0;
}
